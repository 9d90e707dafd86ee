//! Packet filters of this host: what a program on a device passes by, on the way in and on that out.

use std::io;

use super::netlink::{Message, NLM_F_DUMP, Netlink, attribute, number_at};

// Messages, attributes, families and hooks of nftables (linux/netfilter/nf_tables.h,
// linux/netfilter.h), all in network byte order.
const NFT_MSG_GETCHAIN: u16 = 10 << 8 | 4;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_USE: u16 = 6;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_NETDEV: u8 = 5;
const NFPROTO_IPV6: u8 = 10;
const NF_ACCEPT: u32 = 1;
const HOOKS: [&str; 6] = ["prerouting", "input", "forward", "output", "postrouting", "ingress"];
const NETDEV_HOOKS: [&str; 2] = ["ingress", "egress"];

/// What would look at datagrams that a route takes on a device or sends: chains of nftables with
/// rules or a policy other than to accept, tables of the older iptables, and the strict check of
/// senders (`rp_filter`). Chains of what is forwarded are none of them.
pub(crate) fn in_the_way(is_ipv4: bool, device: &str) -> Vec<String> {
    // Without nftables in the kernel there is no such socket, or nobody who answers.
    let mut found = chains(is_ipv4).unwrap_or_default();
    let tables = if is_ipv4 { "ip_tables_names" } else { "ip6_tables_names" };
    // Rules of a table can't be told from here: whoever has it is taken to have rules.
    let tables = std::fs::read_to_string(format!("/proc/thread-self/net/{tables}")).unwrap_or_default();
    found.extend(tables.lines().map(|table| format!("the table {table} of iptables")));
    let strictness = |of: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse::<u8>().ok()).unwrap_or(0)
    };
    // 1 is strict; 2, the usual one, refuses only senders that there is no way to.
    if is_ipv4 && device != "lo" && strictness("all").max(strictness(device)) == 1 {
        found.push(format!("rp_filter=1 on {device}"));
    }
    found
}

fn chains(is_ipv4: bool) -> io::Result<Vec<String>> {
    let netlink = Netlink::of(Some(rustix::net::netlink::NETFILTER))?;
    let mut found = Vec::new();
    // struct nfgenmsg: any family, version 0.
    netlink.ask(Message::new(NFT_MSG_GETCHAIN, NLM_F_DUMP, &[0; 4]), |body| found.extend(chain(body, is_ipv4)))?;
    Ok(found)
}

/// A chain that is in the way, in words.
fn chain(body: &[u8], is_ipv4: bool) -> Option<String> {
    let number = |attribute: &[u8]| number_at(attribute, 0).map(u32::from_be);
    let own = if is_ipv4 { NFPROTO_IPV4 } else { NFPROTO_IPV6 };
    let family = *body.first()?;
    let hook = number(attribute(attribute(body, 4, NFTA_CHAIN_HOOK)?, 0, NFTA_HOOK_HOOKNUM)?)?;
    let (names, kind) = match family {
        NFPROTO_INET => (&HOOKS[..], "inet"),
        NFPROTO_NETDEV => (&NETDEV_HOOKS[..], "netdev"),
        _ if family == own => (&HOOKS[..], if is_ipv4 { "ip" } else { "ip6" }),
        _ => return None,
    };
    let hook = *names.get(hook as usize)?;
    let policy = attribute(body, 4, NFTA_CHAIN_POLICY).and_then(number).unwrap_or(NF_ACCEPT);
    let rules = attribute(body, 4, NFTA_CHAIN_USE).and_then(number).unwrap_or(1);
    if hook == "forward" || policy == NF_ACCEPT && rules == 0 {
        return None;
    }
    let name = |kind| {
        let bytes = attribute(body, 4, kind).unwrap_or_default();
        String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
    };
    let (table, chain) = (name(NFTA_CHAIN_TABLE), name(NFTA_CHAIN_NAME));
    Some(format!("nftables {kind} {table}, chain {chain} ({hook})"))
}
