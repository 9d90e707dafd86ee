use super::*;
use crate::bredr::lmp;

const A: Address = [1; 6];
const B: Address = [2; 6];

fn pair(slots: u8) -> [Acl; 2] {
    let settings = Settings { rate: Rate::Dh, slots, t_poll: 40 * SLOT, active: 40 * SLOT };
    [(Role::Central, B), (Role::Peripheral, A)].map(|(role, peer)| {
        let mut link = Acl::new(role, 1, [A, peer], 1, settings, Instant::default());
        link.peer_slots(slots);
        link
    })
}

/// Runs both to `until`; `lose` says of each packet in turn what becomes of it: received, CRC wrong, missed.
fn run(links: &mut [Acl; 2], until: Nanos, mut fate: impl FnMut(&Packet) -> u8) -> (Vec<Packet>, [Vec<u8>; 2]) {
    let (mut log, mut got) = (Vec::new(), [Vec::new(), Vec::new()]);
    loop {
        let side = usize::from(links[1].due() < links[0].due());
        let now = links[side].due();
        if now.as_nanos() > until {
            return (log, got);
        }
        let Turn::Send(packet) = links[side].turn(now) else { continue };
        let other = &mut links[1 - side];
        let fate = fate(&packet);
        if fate < 2 && other.air_start(&packet, true) {
            let received = other.air_end(packet.end, &packet, fate == 0);
            got[1 - side].extend(received.delivered.map(|delivered| delivered.bytes).unwrap_or_default());
        }
        log.push(packet);
    }
}

#[test]
fn an_idle_link_is_polled_each_t_poll() {
    let mut links = pair(5);
    let (log, _) = run(&mut links, 1000 * 1_000_000, |_| 0);
    let polls: Vec<_> = log.iter().filter(|packet| packet.kind == PacketType::Poll).skip(25).collect();
    assert!(polls.len() > 30);
    assert!(polls.windows(2).all(|pair| span(pair[0].start, pair[1].start) == 40 * SLOT));
}

#[test]
fn data_goes_in_turns_and_is_acknowledged_in_the_next() {
    let mut links = pair(5);
    links[0].enqueue(Instant::default(), Vec::from([7; 500]), true, false);
    links[1].enqueue(Instant::default(), Vec::from([8; 40]), true, false);
    let (log, got) = run(&mut links, 20 * SLOT, |_| 0);
    assert_eq!((got[1].len(), got[0].len()), (500, 40));
    let kinds: Vec<_> = log[..5].iter().map(|packet| (packet.kind, packet.slot, packet.arqn)).collect();
    let expected = [
        (PacketType::Dh5, 0, false),
        (PacketType::Dh3, 5, true),
        (PacketType::Dh3, 8, true),
        (PacketType::Null, 11, true),
        (PacketType::Poll, 12, false),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn whatever_is_lost_data_comes_once_and_in_order() {
    for seed in 0..200 {
        let mut random = crate::rng::Random::new(seed);
        let mut links = pair(3);
        let data: Vec<u8> = (0..4000).map(|at| at as u8).collect();
        for part in data.chunks(777) {
            for link in &mut links {
                link.enqueue(Instant::default(), part.to_vec(), true, false);
            }
        }
        let (log, got) = run(&mut links, 10_000 * SLOT, |_| match random.below(10) {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 0,
        });
        assert_eq!(got, [data.clone(), data], "{seed}");
        assert!(log.iter().any(|packet| packet.retransmission));
    }
}

#[test]
fn what_is_too_old_is_given_up_whole() {
    let mut links = pair(1);
    links[0].flush = 10 * SLOT;
    links[0].enqueue(Instant::default(), Vec::from([1; 100]), true, true);
    links[0].enqueue(Instant::default(), Vec::from([2; 100]), false, true);
    links[0].enqueue(Instant::default(), Vec::from([3; 10]), true, false);
    run(&mut links, 4 * SLOT, |_| 0);
    assert_eq!(links[0].flush_expired(after(Instant::default(), 10 * SLOT)), 2);
    let (_, got) = run(&mut links, 40 * SLOT, |_| 0);
    assert_eq!(got[1], [3; 10]);
    assert_eq!(links[0].packets(), 0);
}

const REASON: u8 = 0x13;

/// Ends a link from one side; `lose` says which of the packets that the other sends from then on are missed. When each
/// side is done, in T_poll, and whether it knows that the other is.
fn part(initiator: usize, lose: impl Fn(usize) -> bool) -> [(Nanos, bool); 2] {
    const { assert!(40 * SLOT == 25_000_000) };
    let mut links = pair(1);
    run(&mut links, 400 * SLOT, |_| 0);
    let begin = links[0].due();
    links[initiator].detach(begin, Vec::from([lmp::DETACH << 1, REASON]), REASON);
    let (mut ends, mut count) = ([(0, false); 2], 0);
    while !(links[0].is_gone() && links[1].is_gone()) {
        let side = usize::from(links[1].due() < links[0].due());
        let now = links[side].due();
        assert!(now < NEVER);
        match links[side].turn(now) {
            Turn::Send(packet) => {
                let is_lost = side != initiator && {
                    count += 1;
                    lose(count)
                };
                let other = &mut links[1 - side];
                if !is_lost && other.air_start(&packet, true) {
                    let received = other.air_end(packet.end, &packet, true);
                    if received.lmp.is_some() {
                        other.detached(packet.end);
                    }
                    if received.delivered.is_some() {
                        other.leave(packet.end, REASON);
                    }
                }
            }
            Turn::Left { reason, is_mutual } => {
                assert_eq!(reason, REASON);
                ends[side] = (span(begin, now) / (40 * SLOT), is_mutual);
            }
            Turn::Nothing => {}
            Turn::Lost | Turn::NeverThere => panic!("lost"),
        }
    }
    ends
}

#[test]
fn a_lost_acknowledgement_of_the_end_is_sent_again() {
    // The central's end is acknowledged at once, or after 20 turns; the peripheral leaves three
    // T_poll after it has heard it.
    assert_eq!(part(0, |_| false), [(3, true), (3, true)]);
    assert_eq!(part(0, |count| count <= 20), [(4, true), (3, true)]);
    // Nothing comes of it: it is dropped after six.
    assert_eq!(part(0, |_| true), [(6, false), (3, true)]);
    // A central that hears it stays for six.
    assert_eq!(part(1, |_| false), [(6, true), (3, true)]);
}

#[test]
fn a_link_that_ends_carries_no_more_data() {
    let mut links = pair(1);
    run(&mut links, 40 * SLOT, |_| 0);
    links[0].detach(links[0].due(), Vec::from([lmp::DETACH << 1, REASON]), REASON);
    links[0].enqueue(links[0].due(), Vec::from([7; 100]), true, false);
    let (log, got) = run(&mut links, 80 * SLOT, |_| 0);
    assert_eq!(got[1], [lmp::DETACH << 1, REASON]);
    assert!(log.iter().all(|packet| packet.kind != PacketType::Dh1));
    assert_eq!(links[0].packets(), 1);
}

#[test]
fn silence_ends_a_link() {
    let mut links = pair(1);
    run(&mut links, 40 * SLOT, |_| 0);
    let [central, _] = &mut links;
    while !matches!(central.turn(central.due()), Turn::Lost) {
        assert!(!central.is_gone());
    }
    assert!(central.is_gone() && central.due() == NEVER);
}
