mod filter;
mod stack;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use super::namespace::Namespace;
use super::netlink::{LOOPBACK, Netlink, NextHop};
use crate::bpf::{AttachPoint, Attachment, Hop, KernelRoute, KernelSpec, KernelTarget, Own};
use crate::condition::{Layout, Program};
use crate::route::{Host, Route, parse_file};

/// The addresses at one version of IP.
#[derive(Clone, Copy, Debug)]
struct Net {
    sensor: IpAddr,
    route: IpAddr,
    /// Somebody on the cable who is not there, and somebody elsewhere.
    nobody: IpAddr,
    elsewhere: IpAddr,
}

const FOUR: Net = Net {
    sensor: IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1)),
    route: IpAddr::V4(Ipv4Addr::new(10, 78, 0, 2)),
    nobody: IpAddr::V4(Ipv4Addr::new(10, 78, 0, 9)),
    elsewhere: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
};
const SIX: Net = Net {
    sensor: IpAddr::V6(Ipv6Addr::new(0xfd00, 0x78, 0, 0, 0, 0, 0, 1)),
    route: IpAddr::V6(Ipv6Addr::new(0xfd00, 0x78, 0, 0, 0x1234, 0, 0xffff, 2)),
    nobody: IpAddr::V6(Ipv6Addr::new(0xfd00, 0x78, 0, 0, 0, 0, 0, 9)),
    elsewhere: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
};

impl Net {
    const fn source(self) -> SocketAddr {
        SocketAddr::new(self.route, 9000)
    }

    const fn sensor(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.sensor, port)
    }
}

/// Two namespaces joined by a cable, with both versions of IP at its ends. `None` where that is not allowed.
struct Cable {
    sensor: Namespace,
    route: Namespace,
    sensor_hop: Hop,
}

impl Cable {
    fn lay(test: &str) -> Option<Self> {
        let (Ok(sensor), Ok(route)) = (Namespace::create(), Namespace::create()) else {
            crate::skip::note(test, "network namespaces are not permitted here (run as root)");
            return None;
        };
        for namespace in [&sensor, &route] {
            // Addresses of links are good at once: nobody else has them. Where that can't be
            // written, it takes a second.
            let _ = namespace.inside(|| std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0"));
        }
        route.inside(|| Netlink::open()?.add_veth("route0", "sensor0", sensor.as_fd())).unwrap();
        let set_up = |namespace: &Namespace, name: &str, own: [IpAddr; 2]| {
            namespace
                .inside(|| {
                    let netlink = Netlink::open()?;
                    let device = netlink.device_named(name)?;
                    netlink.set_up(device.index, &own)?;
                    Ok(device)
                })
                .unwrap()
        };
        let at_sensor = set_up(&sensor, "sensor0", [FOUR.sensor, SIX.sensor]);
        let at_route = set_up(&route, "route0", [FOUR.route, SIX.route]);
        assert_eq!(at_route.kind.as_deref(), Some("veth"));
        let sensor_hop =
            Hop { ifindex: at_route.index, own: at_route.address.unwrap(), next: at_sensor.address.unwrap() };
        // Both know each other, so that no datagram waits for that.
        for (namespace, ifindex, [four, six]) in
            [(&sensor, at_sensor.index, [FOUR.route, SIX.route]), (&route, at_route.index, [FOUR.sensor, SIX.sensor])]
        {
            let find = |next| namespace.inside(|| find(NextHop { ifindex, next })).unwrap();
            assert_eq!([find(four), find(six)].map(|address| address.is_some()), [true; 2]);
        }
        Some(Self { sensor, route, sensor_hop })
    }

    /// A route at the cable's end.
    fn spec(&self, source: SocketAddr, sinks: Vec<(KernelTarget, Option<usize>)>) -> KernelSpec {
        KernelSpec { own: Own { ethernet: self.sensor_hop.own, broadcast: None }, ..KernelSpec::new(source, sinks) }
    }

    fn attach(&self, place: AttachPoint, routes: &[&KernelRoute]) -> Attachment {
        self.route
            .inside(|| Attachment::attach(self.sensor_hop.ifindex, place, routes).map_err(std::io::Error::other))
            .unwrap_or_else(|error| panic!("{place:?}: {error}"))
    }

    fn socket(&self, net: Net, port: u16) -> UdpSocket {
        let socket = self.sensor.inside(|| UdpSocket::bind(net.sensor(port))).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    }
}

const PLACES: [AttachPoint; 3] = [AttachPoint::XdpGeneric, AttachPoint::Tc, AttachPoint::XdpNative];

/// The neighbour's Ethernet address, once it has answered.
fn find(way: NextHop) -> std::io::Result<Option<[u8; 6]>> {
    let netlink = Netlink::open()?;
    for _ in 0..1000 {
        netlink.use_neighbour(way)?;
        if let Some(address) = netlink.neighbour(way) {
            return Ok(Some(address));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(None)
}

fn layout() -> Layout {
    Layout::new([("value".to_owned(), "i64be@0".parse().unwrap())]).unwrap()
}

fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 2048];
    let (length, from) = socket.recv_from(&mut buffer).ok()?;
    Some((buffer[..length].to_vec(), from))
}

#[test]
fn the_way_and_the_neighbour_are_what_was_set_up() {
    let Some(cable) = Cable::lay("net::the_way_and_the_neighbour_are_what_was_set_up") else { return };
    let index = cable.sensor_hop.ifindex;
    let look = |net: Net| {
        let netlink = Netlink::open()?;
        assert_eq!(netlink.device_of(net.source())?, Some(index));
        assert_eq!(netlink.device_of(net.sensor(1))?, None);
        let way = netlink.next_hop_to(net.sensor(1))?;
        assert_eq!(way, NextHop { ifindex: index, next: net.sensor });
        netlink.forget_neighbour(way)?;
        assert_eq!(netlink.neighbour(way), None);
        assert_eq!(find(way)?, Some(cable.sensor_hop.next), "{net:?}");
        assert_eq!(netlink.next_hop_to(net.source())?, NextHop { ifindex: LOOPBACK, next: net.route });
        assert!(netlink.next_hop_to(SocketAddr::new(net.elsewhere, 1)).is_err());
        netlink.set_neighbour(NextHop { next: net.nobody, ..way }, [2, 0, 0, 0, 0, 9])
    };
    for net in [FOUR, SIX] {
        cable.route.inside(|| look(net)).unwrap();
    }
}

/// Every link may have an address of this kind, so it is one with the device's number only.
#[test]
fn an_address_of_a_link_belongs_to_its_device() {
    let Some(cable) = Cable::lay("net::an_address_of_a_link_belongs_to_its_device") else { return };
    let index = cable.sensor_hop.ifindex;
    let own = IpAddr::V6("fe80::78".parse().unwrap());
    let at = |address: &str| address.parse::<SocketAddr>().unwrap();
    let look = || {
        let netlink = Netlink::open()?;
        netlink.set_up(index, &[own])?;
        assert_eq!(netlink.device_of(at(&format!("[fe80::78%{index}]:1")))?, Some(index));
        assert_eq!(netlink.device_of(at(&format!("[fe80::78%{}]:1", index + 1)))?, None);
        assert_eq!(netlink.next_hop_to(at(&format!("[fe80::1%{index}]:1")))?.ifindex, index);
        Ok(())
    };
    cable.route.inside(look).unwrap();
}

#[test]
fn datagrams_are_filtered_and_answered_in_every_place() {
    let Some(cable) = Cable::lay("net::datagrams_are_filtered_and_answered_in_every_place") else { return };
    let program = Program::parse("value > 10", &["value * -2", "value"], &layout()).unwrap();
    for (net, place) in [FOUR, SIX].iter().flat_map(|&net| PLACES.map(|place| (net, place))) {
        let source = net.source();
        for (target, output) in [
            (KernelTarget::Reply, None),
            (KernelTarget::Reply, Some(0)),
            (KernelTarget::To(net.sensor(7000)), None),
            (KernelTarget::To(net.sensor(7000)), Some(0)),
        ] {
            let spec = KernelSpec { log: Some(Some(1)), ..cable.spec(source, vec![(target, output)]) };
            let mut route = KernelRoute::load(&program, spec, place, "t").unwrap_or_else(|error| panic!("{error}"));
            route.set_hop(0, Some(cable.sensor_hop)).unwrap();
            // What XDP sends back over a veth needs a program at the other end.
            let _other = (place == AttachPoint::XdpNative).then(|| {
                let attach = || {
                    let index = Netlink::open()?.device_named("sensor0")?.index;
                    Attachment::leave_alone(index).map_err(std::io::Error::other)
                };
                cable.sensor.inside(attach).unwrap()
            });
            let attached = cable.attach(place, &[&route]);
            let (client, sink) = (cable.socket(net, 0), cable.socket(net, 7000));
            let listens = if target == KernelTarget::Reply { &client } else { &sink };
            let send = |payload: &[u8]| client.send_to(payload, source).unwrap();
            send(&5_i64.to_be_bytes());
            send(&[0, 0, 1]);
            for value in [11_i64, 1 << 40] {
                let mut sent = value.to_be_bytes().to_vec();
                sent.extend(b"tail of odd length"[..(value % 7) as usize].iter());
                send(&sent);
                let expected = output.map_or(sent, |_| (value * -2).to_be_bytes().to_vec());
                let got = receive(listens);
                assert_eq!(got, Some((expected, source)), "{net:?} {place:?} {target:?} {output:?}");
            }
            let counters = route.counters().unwrap();
            assert_eq!([counters.count, counters.passed, counters.short, counters.failed], [3, 2, 1, 0]);
            assert_eq!(counters.histogram.iter().sum::<u64>(), 2);
            let mut logged = Vec::new();
            route.read_log(|record| logged.push((record.count, record.value)));
            assert_eq!(logged, [(2, 11), (3, 1 << 40)]);
            // Other ports reach their sockets.
            let bystander = cable.route.inside(|| UdpSocket::bind((net.route, 9001))).unwrap();
            bystander.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            client.send_to(b"other", (net.route, 9001)).unwrap();
            assert_eq!(receive(&bystander).unwrap().0, b"other");
            // With the link, the program goes.
            drop(attached);
            let socket = cable.route.inside(|| UdpSocket::bind(source)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            send(b"back");
            assert_eq!(receive(&socket).unwrap().0, b"back", "{place:?}");
        }
    }
}

#[test]
fn one_datagram_goes_to_many_sinks() {
    let Some(cable) = Cable::lay("net::one_datagram_goes_to_many_sinks") else { return };
    let program = Program::parse("true", &["value + 1", "value + 2"], &layout()).unwrap();
    for net in [FOUR, SIX] {
        let to = |port| KernelTarget::To(net.sensor(port));
        let reply = (KernelTarget::Reply, None);
        let sinks = vec![(to(7001), Some(0)), (to(7002), None), reply, (to(7003), Some(1)), (to(7004), None)];
        let spec = cable.spec(net.source(), sinks);
        let mut route = KernelRoute::load(&program, spec, AttachPoint::Tc, "t").unwrap_or_else(|e| panic!("{e}"));
        for sink in 0..4 {
            route.set_hop(sink, Some(cable.sensor_hop)).unwrap();
        }
        let _attached = cable.attach(AttachPoint::Tc, &[&route]);
        let sockets: Vec<UdpSocket> = (7001..=7004).map(|port| cable.socket(net, port)).collect();
        let client = cable.socket(net, 0);
        let mut payload = 41_i64.to_be_bytes().to_vec();
        payload.extend(b"and more");
        client.send_to(&payload, net.source()).unwrap();
        let got: Vec<_> = sockets.iter().map(|socket| receive(socket).map(|(bytes, _)| bytes)).collect();
        let number = |n: i64| Some(n.to_be_bytes().to_vec());
        // The last one was never told of its way.
        assert_eq!(got, [number(42), Some(payload.clone()), number(43), None], "{net:?}");
        assert_eq!(receive(&client).unwrap().0, payload);
        assert_eq!(route.counters().unwrap().failed, 1);
    }
}

/// The stack takes no datagram for one of its own addresses that comes from another one of them,
/// unless it sent it itself.
#[test]
fn a_sink_on_the_same_host_is_for_user_space() {
    let Some(cable) = Cable::lay("net::a_sink_on_the_same_host_is_for_user_space") else { return };
    let plan = |net: Net, to: SocketAddr| {
        let file = format!("[[route]]\nname = 'r'\nfrom = 'udp://{}'\nto = ['udp://{to}']", net.source());
        let route = Route::compile(&parse_file(&file).unwrap().remove(0)).unwrap();
        cable.route.inside(|| Ok(Host::ask().plan(&route))).unwrap()
    };
    for net in [FOUR, SIX] {
        let own = plan(net, SocketAddr::new(net.route, 7001));
        assert!(own.places.is_empty() && own.lacks.join("; ").contains("is this host's own"), "{own:?}");
        let other = plan(net, net.sensor(7001));
        assert_eq!((other.places.first(), &other.lacks[..]), (Some(&AttachPoint::XdpGeneric), &[][..]), "{other:?}");
    }
}

/// Routes of both versions of IP behind one program.
#[test]
fn many_routes_share_a_device() {
    let Some(cable) = Cable::lay("net::many_routes_share_a_device") else { return };
    for place in [AttachPoint::XdpGeneric, AttachPoint::Tc] {
        let at = |net: Net, index: u16| SocketAddr::new(net.route, 9000 + index);
        let load = |(net, index): (Net, u16)| {
            let number = i64::from(index) + if net.route.is_ipv6() { 1000 } else { 0 };
            let program = Program::parse("true", &[&number.to_string()], &Layout::default()).unwrap();
            let spec = cable.spec(at(net, index), vec![(KernelTarget::Reply, Some(0))]);
            KernelRoute::load(&program, spec, place, "t").unwrap()
        };
        let routes: Vec<KernelRoute> = (0..50).flat_map(|index| [(FOUR, index), (SIX, index)]).map(load).collect();
        let mut attached = cable.attach(place, &routes.iter().collect::<Vec<_>>());
        for (net, more) in [(FOUR, 0), (SIX, 1000)] {
            let client = cable.socket(net, 0);
            let answer = |index: u16| {
                client.send_to(b"?", at(net, index)).unwrap();
                receive(&client).map(|(bytes, _)| bytes)
            };
            let number = |index: i64| Some((index + more).to_be_bytes().to_vec());
            assert_eq!([answer(0), answer(25), answer(49)], [number(0), number(25), number(49)], "{net:?}");
            assert!(attached.remove(at(net, 25), 99));
            // Nobody listens there any more: ICMP says so, and nothing comes.
            assert_eq!(answer(25), None);
            assert_eq!(answer(26), number(26));
        }
    }
}

/// Of the other traffic of IPv6 nothing is touched: what finds out neighbours, extension headers
/// and fragments, also for the source's own address and port.
#[test]
fn what_is_no_plain_datagram_of_ipv6_reaches_the_stack() {
    let Some(cable) = Cable::lay("net::what_is_no_plain_datagram_of_ipv6_reaches_the_stack") else { return };
    let program = Program::parse("true", &[], &layout()).unwrap();
    for place in PLACES {
        let spec = cable.spec(SIX.source(), vec![(KernelTarget::Reply, None)]);
        let route = KernelRoute::load(&program, spec, place, "t").unwrap_or_else(|error| panic!("{error}"));
        let _attached = cable.attach(place, &[&route]);
        let socket = cable.route.inside(|| UdpSocket::bind(SIX.source())).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let client = cable.socket(SIX, 0);
        // Longer than the cable's MTU, so in fragments; the first one has the header of UDP in it.
        let long = vec![7; 4000];
        client.send_to(&long, SIX.source()).unwrap();
        assert_eq!(receive(&socket).map(|(bytes, _)| bytes.len().min(2048)), Some(2048), "{place:?}");
        // With a header of options for the destination: eight bytes, with padding in them (RFC 8200, section 4.6).
        super::namespace::set_destination_options(&client, &[0, 0, 1, 4, 0, 0, 0, 0]).unwrap();
        client.send_to(b"options", SIX.source()).unwrap();
        assert_eq!(receive(&socket).map(|(bytes, _)| bytes), Some(b"options".to_vec()), "{place:?}");
        // Both ends forget each other, and have to find each other again.
        let counted = |expected: [u64; 2]| {
            let counters = route.counters().unwrap();
            assert_eq!([counters.count, counters.short], expected, "{place:?}");
        };
        counted([0, 0]);
        let way = NextHop { ifindex: cable.sensor_hop.ifindex, next: SIX.sensor };
        cable.route.inside(|| Netlink::open()?.forget_neighbour(way)).unwrap();
        assert_eq!(cable.route.inside(|| find(way)).unwrap(), Some(cable.sensor_hop.next), "{place:?}");
        counted([0, 0]);
    }
}

/// Payloads of every length that the pieces of a sum can make, over IPv6: a wrong checksum would let nothing through.
#[test]
fn payloads_of_all_lengths_are_summed_up() {
    let Some(cable) = Cable::lay("net::payloads_of_all_lengths_are_summed_up") else { return };
    let program = Program::parse("true", &[], &Layout::default()).unwrap();
    for place in PLACES {
        let spec = cable.spec(SIX.source(), vec![(KernelTarget::Reply, None)]);
        let route = KernelRoute::load(&program, spec, place, "t").unwrap_or_else(|error| panic!("{error}"));
        let _attached = cable.attach(place, &[&route]);
        // So that what comes back is a frame without a half-done checksum, which the stack looks at.
        let attach = || {
            let index = Netlink::open()?.device_named("sensor0")?.index;
            Attachment::leave_alone(index).map_err(std::io::Error::other)
        };
        let _other = cable.sensor.inside(attach).unwrap();
        let client = cable.socket(SIX, 0);
        for length in (0..70).chain([127, 128, 255, 511, 512, 513, 1023, 1024, 1025, 1279, 1451, 1452]) {
            let payload: Vec<u8> = (0..length).map(|at| (at * 37 + length * 11) as u8 | 1).collect();
            client.send_to(&payload, SIX.source()).unwrap();
            assert_eq!(receive(&client), Some((payload, SIX.source())), "{place:?}, {length} bytes");
        }
    }
}
