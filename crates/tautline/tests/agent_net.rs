//! Agents in namespaces of their own: exactly the pairs that are slow or lose messages are named.

mod agent_support;
mod explain_support;
mod net_support;
mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use agent_support::{assert_alone, pairs, reasons, wait_for};
use net_support::{Net, address, named, with_detours};
use support::{has, is_root, long, parse, skip, taut, text};

/// What was started, and ends with this.
struct Started(Vec<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `TAUT_AGENTS`: how many there are, in place of 24.
fn agents() -> usize {
    let number = std::env::var("TAUT_AGENTS").ok().map(|text| text.parse().expect("a number"));
    number.unwrap_or_else(|| if long() { 24 } else { 8 }).clamp(6, 200)
}

fn program() -> String {
    taut().get_program().to_str().unwrap().to_owned()
}

/// A server behind the bridge, and an agent on each host, in racks of eight.
fn started(net: &Net, on: &str) -> Started {
    let count = net.hosts().len();
    let mut server = net.command(count, "nats-server");
    server.args(["-a", on, "-p", "4222", "-js", "-sd"]).arg(net.path("store"));
    let program = program();
    let mut started = Started(vec![quiet(&mut server).spawn().unwrap()]);
    for (host, name) in net.hosts().iter().enumerate() {
        let rack = format!("rack=r{}", host / 8);
        let mut agent = net.command(host, &program);
        agent.args(["agent", "--on", &format!("nats://{on}"), "--name", name, "--address", &address(host)]);
        agent.args(["--label", &rack, "--label", "site=x"]).stdin(Stdio::null());
        started.0.push(agent.stderr(File::create(net.path(name)).unwrap()).spawn().unwrap());
    }
    let told = |name: &String| fs::read_to_string(net.path(name)).unwrap_or_default();
    for name in net.hosts() {
        wait_for("an agent", || told(name).contains("is on nats://"), || told(name));
    }
    started
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

#[test]
fn exactly_the_slow_and_the_lossy_pair_of_agents_are_named() {
    const NAME: &str = "exactly_the_slow_and_the_lossy_pair_of_agents_are_named";
    if !is_root() {
        return skip(NAME, "needs root for namespaces");
    }
    if !has("nats-server") {
        return skip(NAME, "nats-server is not installed");
    }
    let count = agents();
    let (on, net) = match with_detours(count).and_then(|net| Ok((net.address_of_switch()?, net))) {
        Ok(found) => found,
        Err(why) => return skip(NAME, &why),
    };
    let _started = started(&net, &on);
    let all = count * (count - 1) / 2;
    // Agents spread their first measurements over half of the time: some twelve a second. What loses messages takes
    // longer, half a second for each.
    let time = 20 + (all / 6).clamp(10, 120);
    let plan = "[mesh]\nhosts = [\"label:site=x\"]\npatience = \"60s\"\n[[mesh.work]]\necho = \"udp\"\n\
                every = \"1h\"\nmessages = 100\ntimeout = \"500ms\"\nwarn = \"p50 > 20ms or lost >= 2%\"\nexplain = true\n";
    fs::write(net.path("mesh.toml"), plan).unwrap();
    let mut run = net.command(count, &program());
    run.args(["mesh", "run"]).arg(net.path("mesh.toml")).args(["--on", &format!("nats://{on}"), "--json", "--all"]);
    run.args(["--for", &format!("{time}s"), "--out"]).arg(net.path("measured"));
    let output = run.output().unwrap();
    let document = parse(&output);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{:?}\n{said}", reasons(&document, 0));
    assert_eq!((pairs(&document, 0).len(), reasons(&document, 0)), (all, BTreeSet::new()));
    assert_eq!(named(&net, &document, 0), BTreeSet::from([(1, 4), (2, 5)]), "{said}");
    for pair in pairs(&document, 0).iter().filter(|pair| pair.get("misses").is_some()) {
        let is_slow = net.ends(&document, pair) == (1, 4);
        let p50 = pair["measured"]["rtt_ns"]["p50"].as_u64().unwrap();
        let lost = pair["measured"]["lost"].as_u64().unwrap();
        assert!(if is_slow { p50 > 60_000_000 } else { (2..=16).contains(&lost) }, "{pair}");
        assert!(pair["explained"]["messages"].as_u64() > Some(0), "{pair}");
    }
    // All of them, the two looks, and nothing twice.
    let account = serde_json::json!({
        "taken": all + 2, "again": 0, "dropped": 0, "missing": 0, "unclosed": [], "strange": 0
    });
    assert_eq!(document["results"], account);
    let kept = fs::read_to_string(net.path("measured/results.jsonl")).unwrap();
    let results: Vec<_> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(assert_alone(&results, &[]), 2);
    println!("{count} agents in namespaces, {all} pairs: {}", document["results"]);
}
