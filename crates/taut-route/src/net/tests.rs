use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use super::namespace::Namespace;
use super::netlink::{Netlink, Way};
use crate::bpf::{Attachment, Hop, KernelRoute, KernelSpec, KernelTarget, Place};
use crate::condition::{Layout, Program};

const SENSOR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const ROUTE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const SOURCE: SocketAddrV4 = SocketAddrV4::new(ROUTE, 9000);

/// Two namespaces joined by a cable, with its ends at `SENSOR` and `ROUTE`. `None` where that is not allowed.
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
        route.inside(|| Netlink::open()?.add_veth("route0", "sensor0", sensor.as_fd())).unwrap();
        let set_up = |namespace: &Namespace, name: &str, own: Ipv4Addr| {
            namespace
                .inside(|| {
                    let netlink = Netlink::open()?;
                    let device = netlink.device_named(name)?;
                    netlink.set_up(device.index, Some(own))?;
                    Ok(device)
                })
                .unwrap()
        };
        let at_sensor = set_up(&sensor, "sensor0", SENSOR);
        let at_route = set_up(&route, "route0", ROUTE);
        assert_eq!(at_route.kind.as_deref(), Some("veth"));
        let sensor_hop =
            Hop { ifindex: at_route.index, own: at_route.address.unwrap(), next: at_sensor.address.unwrap() };
        Some(Self { sensor, route, sensor_hop })
    }

    fn attach(&self, place: Place, routes: &[&KernelRoute]) -> Attachment {
        self.route
            .inside(|| Attachment::attach(self.sensor_hop.ifindex, place, routes).map_err(std::io::Error::other))
            .unwrap_or_else(|error| panic!("{place:?}: {error}"))
    }

    fn socket(&self, port: u16) -> UdpSocket {
        let socket = self.sensor.inside(|| UdpSocket::bind((SENSOR, port))).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    }
}

fn layout() -> Layout {
    Layout::new([("value".to_owned(), "i64be@0".parse().unwrap())]).unwrap()
}

fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, std::net::SocketAddr)> {
    let mut buffer = [0; 2048];
    let (length, from) = socket.recv_from(&mut buffer).ok()?;
    Some((buffer[..length].to_vec(), from))
}

#[test]
fn the_way_and_the_neighbour_are_what_was_set_up() {
    let Some(cable) = Cable::lay("net::the_way_and_the_neighbour_are_what_was_set_up") else { return };
    cable
        .route
        .inside(|| {
            let netlink = Netlink::open()?;
            assert_eq!(netlink.device_of(ROUTE)?, Some(cable.sensor_hop.ifindex));
            assert_eq!(netlink.device_of(SENSOR)?, None);
            let way = netlink.way_to(SENSOR)?;
            assert_eq!(way, Way { ifindex: cable.sensor_hop.ifindex, next: SENSOR });
            netlink.use_neighbour(way)?;
            let deadline = std::time::Instant::now() + Duration::from_secs(5);
            while netlink.neighbour(way).is_none() {
                assert!(std::time::Instant::now() < deadline, "nobody answered the ARP request");
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(netlink.neighbour(way), Some(cable.sensor_hop.next));
            assert!(netlink.way_to(Ipv4Addr::new(192, 0, 2, 1)).is_err());
            netlink.set_neighbour(Way { next: Ipv4Addr::new(10, 78, 0, 9), ..way }, [2, 0, 0, 0, 0, 9])
        })
        .unwrap();
}

#[test]
fn datagrams_are_filtered_and_answered_in_every_place() {
    let Some(cable) = Cable::lay("net::datagrams_are_filtered_and_answered_in_every_place") else { return };
    let program = Program::parse("value > 10", &["value * -2", "value"], &layout()).unwrap();
    for place in [Place::XdpGeneric, Place::Tc, Place::XdpNative] {
        for (target, output) in [
            (KernelTarget::Reply, None),
            (KernelTarget::Reply, Some(0)),
            (KernelTarget::To(SocketAddrV4::new(SENSOR, 7000)), None),
            (KernelTarget::To(SocketAddrV4::new(SENSOR, 7000)), Some(0)),
        ] {
            let spec = KernelSpec { source: SOURCE, sinks: vec![(target, output)], log: Some(Some(1)) };
            let mut route = KernelRoute::load(&program, spec, place, "t").unwrap_or_else(|error| panic!("{error}"));
            route.set_hop(0, Some(cable.sensor_hop)).unwrap();
            // What XDP sends back over a veth needs a program at the other end.
            let _other = (place == Place::XdpNative).then(|| {
                let attach = || {
                    let index = Netlink::open()?.device_named("sensor0")?.index;
                    Attachment::leave_alone(index).map_err(std::io::Error::other)
                };
                cable.sensor.inside(attach).unwrap()
            });
            let attached = cable.attach(place, &[&route]);
            let (client, sink) = (cable.socket(0), cable.socket(7000));
            let listens = if target == KernelTarget::Reply { &client } else { &sink };
            let send = |payload: &[u8]| client.send_to(payload, SOURCE).unwrap();
            send(&5_i64.to_be_bytes());
            send(&[0, 0, 1]);
            for value in [11_i64, 1 << 40] {
                let mut sent = value.to_be_bytes().to_vec();
                sent.extend(b"tail of odd length"[..(value % 7) as usize].iter());
                send(&sent);
                let expected = output.map_or(sent, |_| (value * -2).to_be_bytes().to_vec());
                let got = receive(listens);
                assert_eq!(got, Some((expected, SOURCE.into())), "{place:?} {target:?} {output:?}");
            }
            let counters = route.counters().unwrap();
            assert_eq!([counters.count, counters.passed, counters.short, counters.failed], [3, 2, 1, 0]);
            assert_eq!(counters.histogram.iter().sum::<u64>(), 2);
            let mut logged = Vec::new();
            route.read_log(|record| logged.push((record.count, record.value)));
            assert_eq!(logged, [(2, 11), (3, 1 << 40)]);
            // Other ports reach their sockets.
            let bystander = cable.route.inside(|| UdpSocket::bind((ROUTE, 9001))).unwrap();
            bystander.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            client.send_to(b"other", (ROUTE, 9001)).unwrap();
            assert_eq!(receive(&bystander).unwrap().0, b"other");
            // With the link, the program goes.
            drop(attached);
            let socket = cable.route.inside(|| UdpSocket::bind(SOURCE)).unwrap();
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
    let to = |port| KernelTarget::To(SocketAddrV4::new(SENSOR, port));
    let sinks =
        vec![(to(7001), Some(0)), (to(7002), None), (KernelTarget::Reply, None), (to(7003), Some(1)), (to(7004), None)];
    let mut route = KernelRoute::load(&program, KernelSpec { source: SOURCE, sinks, log: None }, Place::Tc, "t")
        .unwrap_or_else(|e| panic!("{e}"));
    for sink in 0..4 {
        route.set_hop(sink, Some(cable.sensor_hop)).unwrap();
    }
    let _attached = cable.attach(Place::Tc, &[&route]);
    let sockets: Vec<UdpSocket> = (7001..=7004).map(|port| cable.socket(port)).collect();
    let client = cable.socket(0);
    let mut payload = 41_i64.to_be_bytes().to_vec();
    payload.extend(b"and more");
    client.send_to(&payload, SOURCE).unwrap();
    let got: Vec<_> = sockets.iter().map(|socket| receive(socket).map(|(bytes, _)| bytes)).collect();
    let number = |n: i64| Some(n.to_be_bytes().to_vec());
    // The last one was never told of its way.
    assert_eq!(got, [number(42), Some(payload.clone()), number(43), None]);
    assert_eq!(receive(&client).unwrap().0, payload);
    assert_eq!(route.counters().unwrap().failed, 1);
}

#[test]
fn many_routes_share_a_device() {
    let Some(cable) = Cable::lay("net::many_routes_share_a_device") else { return };
    for place in [Place::XdpGeneric, Place::Tc] {
        let routes: Vec<KernelRoute> = (0..100_u16)
            .map(|index| {
                let program = Program::parse("true", &[&index.to_string()], &Layout::default()).unwrap();
                let source = SocketAddrV4::new(ROUTE, 9000 + index);
                let spec = KernelSpec { source, sinks: vec![(KernelTarget::Reply, Some(0))], log: None };
                KernelRoute::load(&program, spec, place, "t").unwrap()
            })
            .collect();
        let mut attached = cable.attach(place, &routes.iter().collect::<Vec<_>>());
        let client = cable.socket(0);
        for index in [0_u16, 50, 99] {
            client.send_to(b"?", (ROUTE, 9000 + index)).unwrap();
            assert_eq!(receive(&client).unwrap().0, i64::from(index).to_be_bytes());
        }
        assert!(attached.remove(SocketAddrV4::new(ROUTE, 9050), 99));
        client.send_to(b"?", (ROUTE, 9050)).unwrap();
        // Nobody listens there any more: ICMP says so, and nothing comes.
        assert_eq!(receive(&client), None);
        client.send_to(b"?", (ROUTE, 9051)).unwrap();
        assert_eq!(receive(&client).unwrap().0, 51_i64.to_be_bytes());
    }
}
