//! Packet filters that stand in the way are found, and `auto` does not pass them by.

use super::super::netlink::{Message, Netlink};
use super::{Cable, FOUR, Net, SIX};
use crate::route::{Host, Plan, Route, parse_file};

const NFPROTO_INET: u8 = 1;
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFT_MSG_NEWTABLE: u16 = 10 << 8;
const NFT_MSG_NEWCHAIN: u16 = 10 << 8 | 3;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;

/// A table of nftables with one chain, as nft(8) makes it.
fn make_chain(hook: u32, policy: u32) -> std::io::Result<()> {
    let header = |family: u8, resource: u8| [family, 0, 0, resource];
    let name = |message: &mut Message, kind: u16| message.attribute(kind, b"guard\0");
    let mut table = Message::new(NFT_MSG_NEWTABLE, NLM_F_CREATE, &header(NFPROTO_INET, 0));
    name(&mut table, 1);
    let mut chain = Message::new(NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_ACK, &header(NFPROTO_INET, 0));
    name(&mut chain, 1);
    name(&mut chain, 3);
    chain.nested(4, &[], |place| {
        place.attribute(1, &hook.to_be_bytes());
        place.attribute(2, &0_u32.to_be_bytes());
    });
    chain.attribute(5, &policy.to_be_bytes());
    chain.attribute(7, b"filter\0");
    // The subsystem of nftables.
    let begin = Message::new(NFNL_MSG_BATCH_BEGIN, 0, &header(0, 10));
    let end = Message::new(NFNL_MSG_BATCH_END, 0, &header(0, 10));
    Netlink::of(Some(rustix::net::netlink::NETFILTER))?.tell_all([begin, table, chain, end])
}

fn plan(cable: &Cable, net: Net, place: &str) -> Plan {
    let file = format!("[[route]]\nname = 'r'\nfrom = 'udp://{}'\nto = ['reply']\nplace = '{place}'", net.source());
    let route = Route::compile(&parse_file(&file).unwrap().remove(0)).unwrap();
    cable.route.inside(|| Ok(Host::ask().plan(&route))).unwrap()
}

#[test]
fn auto_keeps_behind_a_packet_filter_and_says_so() {
    const TEST: &str = "net::auto_keeps_behind_a_packet_filter_and_says_so";
    const INPUT: u32 = 1;
    const FORWARD: u32 = 2;
    const DROP: u32 = 0;
    const ACCEPT: u32 = 1;
    for (hook, policy, is_in_the_way) in [(INPUT, DROP, true), (INPUT, ACCEPT, false), (FORWARD, DROP, false)] {
        let Some(cable) = Cable::lay(TEST) else { return };
        for net in [FOUR, SIX] {
            let plan = plan(&cable, net, "auto");
            assert!(!plan.places.is_empty() && plan.why.join("; ").contains("before any packet filter"), "{plan:?}");
        }
        if let Err(error) = cable.route.inside(|| make_chain(hook, policy)) {
            return crate::skip::note(TEST, &format!("no nftables in this kernel: {error}"));
        }
        for net in [FOUR, SIX] {
            let auto = plan(&cable, net, "auto");
            assert_eq!(auto.places.is_empty(), is_in_the_way, "{hook} {policy} {auto:?}");
            let asked = plan(&cable, net, "kernel");
            assert!(!asked.places.is_empty(), "{asked:?}");
            if is_in_the_way {
                let why = auto.why.join("; ");
                assert!(why.contains("nftables inet guard, chain guard (input); --place kernel passes it by"), "{why}");
                assert!(asked.why.join("; ").contains("it passes by nftables inet guard"), "{asked:?}");
            }
        }
    }
}

#[test]
fn a_strict_check_of_senders_is_a_packet_filter_too() {
    let Some(cable) = Cable::lay("net::a_strict_check_of_senders_is_a_packet_filter_too") else { return };
    let strict = || std::fs::write("/proc/sys/net/ipv4/conf/route0/rp_filter", "1");
    if cable.route.inside(strict).is_err() {
        let why = "/proc/sys can't be written here";
        return crate::skip::note("net::a_strict_check_of_senders_is_a_packet_filter_too", why);
    }
    let auto = plan(&cable, FOUR, "auto");
    assert!(auto.places.is_empty() && auto.why.join("; ").contains("rp_filter=1 on route0"), "{auto:?}");
    assert!(!plan(&cable, SIX, "auto").places.is_empty());
}
