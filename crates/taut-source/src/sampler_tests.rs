use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use super::*;

fn pair() -> (TcpStream, TcpStream, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0, listener.local_addr().unwrap().port())
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

#[test]
fn one_that_comes_between_two_looks_for_owners_has_its_owner_in_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut sampler = Sampler::new(None, Some(address.port()), |_| None).unwrap();
    let _first = TcpStream::connect(address).unwrap();
    sampler.look(at(1000)).unwrap();
    let late = TcpStream::connect(address).unwrap();
    sampler.look(at(1100)).unwrap();
    // Nothing else is new.
    sampler.look(at(1600)).unwrap();
    let seen = sampler.finish();
    let late = seen.iter().find(|seen| seen.last.local == late.local_addr().unwrap()).unwrap();
    assert_eq!(late.owner.as_ref().unwrap().pid, std::process::id() as i32);
    assert_eq!((late.samples, late.span), (2, Duration::from_millis(500)));
    let waiting = seen.iter().find(|seen| seen.last.peer == late.last.local).unwrap();
    assert_eq!((waiting.unaccepted_samples, &waiting.owner), (2, &None));
}

#[test]
fn what_was_seen_before_it_settled_takes_no_time() {
    let (client, server, port) = pair();
    let (gone, other, gone_port) = pair();
    let mut sampler = Sampler::new(None, None, |_| Some(Holder::Nagle)).unwrap();
    sampler.look(at(0)).unwrap();
    sampler.settle();
    drop((gone, other));
    sampler.look(at(5000)).unwrap();
    sampler.look(at(5020)).unwrap();
    assert_eq!(sampler.looks(), 2);
    let seen: Vec<Seen> = sampler.finish();
    assert!(seen.iter().all(|seen| seen.last.local.port() != gone_port));
    let ends = [client.local_addr().unwrap().port(), server.local_addr().unwrap().port()];
    let ours: Vec<_> = seen.iter().filter(|seen| ends.contains(&seen.last.local.port())).collect();
    assert_eq!((ours.len(), port), (2, ends[1]));
    for one in ours {
        let held = one.held[Holder::Nagle.index()];
        assert_eq!((one.samples, one.span, held), (2, Duration::from_millis(20), Duration::from_millis(20)));
        assert!(one.owner.is_some() && one.options.is_some());
    }
}

#[test]
fn what_waits_is_looked_at_by_itself_and_counts_anew_after_a_restart() {
    let (client, mut server, port) = pair();
    let (_quiet, _other, _) = pair();
    let mut sampler = Sampler::new(None, None, |state| (state.unread_bytes > 0).then_some(Holder::NotKnown)).unwrap();
    sampler.look(at(0)).unwrap();
    let of = |sampler: &Sampler| {
        let ours = |seen: &&Seen| seen.last.local == client.local_addr().unwrap();
        sampler.seen().find(ours).map(|seen| (seen.samples, seen.span, seen.unread)).unwrap()
    };
    assert_eq!(of(&sampler), (1, Duration::ZERO, Duration::ZERO));
    server.write_all(b"four").unwrap();
    sampler.look(at(1000)).unwrap();
    assert!(sampler.look_at_suspects(at(1020)).unwrap() >= 1);
    let ms = Duration::from_millis;
    assert_eq!(of(&sampler), (3, ms(1020), ms(20)));
    sampler.restart();
    assert_eq!(sampler.seen().count(), 0);
    sampler.look_at_suspects(at(1050)).unwrap();
    assert_eq!(of(&sampler), (1, ms(30), ms(30)));
    let mut read = [0; 4];
    (&client).read_exact(&mut read).unwrap();
    sampler.look_at_suspects(at(1060)).unwrap();
    // It is a suspect for a while after that, and then it is not.
    sampler.look_at_suspects(at(2900)).unwrap();
    assert_eq!(of(&sampler), (3, ms(1880), ms(40)));
    sampler.look_at_suspects(at(3100)).unwrap();
    assert_eq!(of(&sampler).0, 3);
    let seen = sampler.seen().find(|seen| seen.last.local == client.local_addr().unwrap()).unwrap();
    assert_eq!(sampler.peer_of(seen).unwrap().pid, std::process::id() as i32);
    let _ = port;
    drop((client, server));
    sampler.look(at(3200)).unwrap();
    sampler.restart();
    assert!(sampler.seen.values().all(|seen| seen.last.peer.port() != port && seen.last.local.port() != port));
    assert!(sampler.ends.keys().all(|(local, peer)| peer.port() != port && local.port() != port));
}

#[test]
fn a_full_accept_queue_is_looked_at_with_the_suspects_until_it_has_had_room_for_a_while() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut sampler = Sampler::new(None, Some(address.port()), |_| None).unwrap();
    sampler.look(at(0)).unwrap();
    let of = |sampler: &Sampler| {
        let seen = sampler.seen().find(|seen| seen.last.state == State::Listen).unwrap();
        (seen.samples, seen.full_samples, seen.full)
    };
    let ms = Duration::from_millis;
    sampler.look_at_suspects(at(10)).unwrap();
    assert_eq!(of(&sampler), (1, 0, Duration::ZERO));
    let _waits = TcpStream::connect(address).unwrap();
    sampler.look(at(20)).unwrap();
    sampler.look_at_suspects(at(40)).unwrap();
    assert_eq!(of(&sampler), (3, 2, ms(20)));
    let _accepted = listener.accept().unwrap();
    sampler.look_at_suspects(at(60)).unwrap();
    sampler.look_at_suspects(at(1000)).unwrap();
    assert_eq!(of(&sampler), (5, 2, ms(40)));
    sampler.look_at_suspects(at(3000)).unwrap();
    assert_eq!(of(&sampler).0, 5);
}

#[test]
fn a_program_listens_at_its_address_and_at_any() {
    let mut sampler = Sampler::new(None, None, |_| None).unwrap();
    let mut listens = |listening: &str, local: &str| {
        sampler.listening = [listening.parse().unwrap()].into();
        sampler.listens_at(local.parse().unwrap())
    };
    assert!(listens("127.0.0.1:80", "127.0.0.1:80") && listens("0.0.0.0:80", "10.0.0.1:80"));
    assert!(listens("[::]:80", "10.0.0.1:80") && listens("[::]:80", "[fd00::1]:80"));
    assert!(!listens("127.0.0.1:80", "127.0.0.1:81") && !listens("127.0.0.1:80", "10.0.0.1:80"));
    assert!(!listens("0.0.0.0:80", "[fd00::1]:80"));
}

#[test]
fn options_are_those_of_the_end() {
    let (client, _server, port) = pair();
    let mut sampler = Sampler::new(None, Some(port), |_| None).unwrap();
    sampler.look(at(0)).unwrap();
    client.set_nodelay(true).unwrap();
    let seen = sampler.finish();
    let client = seen.iter().find(|seen| seen.last.local == client.local_addr().unwrap()).unwrap();
    assert!(client.options.unwrap().no_delay);
}

#[test]
fn the_other_end_of_one_program_is_named() {
    let (client, server, port) = pair();
    // Another program has the other end as well; ours is the one asked for.
    let other = std::process::Stdio::from(std::os::fd::OwnedFd::from(server.try_clone().unwrap()));
    let mut cat = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).stdout(other).spawn().unwrap();
    drop(server);
    let mut sampler = Sampler::new(Some(std::process::id() as i32), Some(port), |_| None).unwrap();
    sampler.look(at(0)).unwrap();
    let seen = sampler.finish();
    drop(cat.stdin.take());
    cat.wait().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].owner.as_ref().unwrap().fd, client.as_raw_fd());
    assert_eq!(seen[0].peer.as_ref().unwrap().pid, cat.id() as i32);
}

#[test]
fn those_that_are_gone_are_kept_up_to_a_number() {
    let (client, server, port) = pair();
    let mut sampler = Sampler::new(None, Some(port), |_| None).unwrap();
    sampler.look(at(0)).unwrap();
    drop((client, server));
    sampler.look(at(20)).unwrap();
    sampler.latest.clear();
    sampler.forget(at(20), 2);
    assert_eq!(sampler.forgotten(), 0);
    sampler.forget(at(21), 1);
    assert_eq!((sampler.forgotten(), sampler.finish().len()), (2, 0));
}

/// The kernel tells the program of a thousand bytes only, or that no more come.
#[test]
fn fewer_bytes_than_the_program_asked_for_do_not_wait_for_it() {
    let (mut client, server, port) = pair();
    client.write_all(&[0; 50]).unwrap();
    let own = server.local_addr().unwrap();
    let look = || {
        let mut sampler = Sampler::new(None, Some(port), |_| None).unwrap();
        sampler.look(at(0)).unwrap();
        sampler.finish().into_iter().find(|seen| seen.last.local == own && seen.last.state != State::Listen).unwrap()
    };
    let mut seen = look();
    let options = seen.options.unwrap();
    assert_eq!((seen.unread_samples, seen.has_unread(), options.receive_low_water), (1, true, 1));
    seen.options = Some(Options { receive_low_water: 1000, ..options });
    assert!(!seen.has_unread() && !seen.waits());
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(Seen { options: seen.options, ..look() }.has_unread());
}
