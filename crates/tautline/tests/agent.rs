//! Agents on a NATS server: each pair is measured, nothing is lost untold or counted twice, and leases hold and end.

mod agent_support;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use std::{fs, thread};

use agent_support::{Fleet, Raw, assert_alone, command_of, pairs, reasons, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{children, long, parse, taut, text};

const ALL: &[&str] = &["--allow", "echo,pace,stream"];

#[test]
fn each_pair_is_measured_and_what_is_alone_never_overlaps() {
    let Some(mut fleet) = Fleet::served("each_pair_is_measured_and_what_is_alone_never_overlaps") else { return };
    fleet.three(&[ALL, &["--label", "site=x"]].concat());
    // The fourth has another label, and none of the plan's business.
    fleet.agent("h4", 4, &["--label", "site=y"]);
    fleet.plan(
        "hosts = [\"label:site=x\"]\nboth_ways = true\n\
         [[mesh.work]]\nstream = \"tcp\"\ntime = \"300ms\"\n\
         [[mesh.work]]\necho = \"udp\"\nmessages = 100\nwarn = \"p50 > 1ns\"\nexplain = true\n",
    );
    let output = fleet.run(&["--out", "measured"]);
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(3), "{document:#}\n{}", text(&output.stderr));
    for work in 0..2 {
        assert_eq!((pairs(&document, work).len(), reasons(&document, work)), (6, BTreeSet::new()), "{document:#}");
    }
    let echo = &pairs(&document, 1)[0];
    assert!(echo["measured"]["rtt_ns"]["p50"].as_u64() > Some(0) && echo["explained"]["messages"].as_u64() > Some(0));
    assert!(pairs(&document, 0)[0]["measured"]["throughput_bps"].as_f64() > Some(0.0));
    // Six of each work, and six looks.
    let account = serde_json::json!({
        "taken": 18, "again": 0, "dropped": 0, "missing": 0, "unclosed": [], "strange": 0
    });
    assert_eq!(document["results"], account);
    assert_eq!(assert_alone(&fleet.results(), &[0]), 12);

    let schema: Value = serde_json::from_slice(&taut().args(["generate", "schema"]).output().unwrap().stdout).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    let again = taut().args(["mesh", "report"]).arg(fleet.path("measured")).output().unwrap();
    let told = text(&again.stdout);
    assert!(told.starts_with("12 of 12 measurements between 3 hosts in "), "{told}");
    assert!(told.contains("18 results taken, 0 lost") && told.contains("→ pace: "), "{told}");

    // At its end an agent says that it is gone.
    fleet.agents.get_mut("h3").unwrap().signal(Signal::TERM);
    fleet.plan("hosts = [\"h1\", \"h2\", \"h3\"]\npatience = \"5s\"\n[[mesh.work]]\necho = \"tcp\"\nmessages = 9\n");
    let output = fleet.run(&[]);
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(document["hosts"][2]["failed"], "no agent of that name is there");
    assert_eq!(reasons(&document, 0), BTreeSet::from(["h3 is not there".to_owned()]));
}

/// A run in whose middle the server is killed and away for a while, in which some of the agents are killed that have
/// results to send. Checks that nothing is lost or counts twice, and returns when the server went and came, and the
/// results.
fn outage(fleet: &mut Fleet, agents: u16, killed: u16, run: &str, seconds: u64) -> ([u64; 2], Vec<Value>) {
    let name = |number: u16| format!("h{number}");
    for number in 1..=agents {
        let state = fleet.path(&format!("state{number}"));
        let more = ["--label", "site=x", "--state", state.to_str().unwrap()];
        fleet.begin(&name(number), number, &[ALL, &more].concat());
    }
    (1..=agents).for_each(|number| fleet.hear(&name(number), "is on nats://"));
    let gathering = fleet.command(&["--for", run, "--out", "measured"]).spawn().unwrap();
    fleet.hear("h1", " again and again");
    thread::sleep(Duration::from_secs(5));
    fleet.server = None;
    let unix_ns = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let away = unix_ns();
    thread::sleep(Duration::from_secs(seconds - 2));
    (1..=killed).for_each(|number| fleet.agents.get_mut(&name(number)).unwrap().signal(Signal::KILL));
    thread::sleep(Duration::from_secs(2));
    let back = unix_ns();
    assert!(fleet.serve());
    for number in 1..=killed {
        let arguments = fleet.agents[&name(number)].arguments.clone();
        fleet.start(&name(number), arguments);
    }
    let output = gathering.wait_with_output().unwrap();
    let document = parse(&output);
    // Who asks a killed one fails, until it asks again. A machine that does too much else does not come to all in time.
    let works = 0..document["works"].as_array().unwrap().len();
    let failed: Vec<BTreeSet<String>> = works.map(|work| reasons(&document, work)).collect();
    let is_late = |why: &String| agents > 3 && why.starts_with("no result came within ");
    assert!(failed[0].iter().all(is_late), "{failed:?}\n{}", text(&output.stderr));
    let code = i32::from(failed.iter().any(|failed| !failed.is_empty()));
    assert_eq!(output.status.code(), Some(code), "{failed:?}\n{}", text(&output.stderr));
    let account = &document["results"];
    let of = |key: &str| account[key].as_u64().unwrap();
    assert_eq!((of("dropped"), of("missing"), &account["unclosed"]), (0, 0, &serde_json::json!([])), "{account}");
    // Nor is anything in the stream twice.
    assert_eq!(of("again"), 0, "{account}");
    println!("{agents} agents, {killed} killed: {account}");
    let results = fleet.results();
    assert_eq!(results.iter().filter(|result| result["what"] != "closed").count() as u64, of("taken"));
    // Each life of an agent is there from its first result to its last.
    let mut lives: BTreeMap<(String, u64), Vec<u64>> = BTreeMap::new();
    for result in &results {
        let life = (result["agent"].as_str().unwrap().to_owned(), result["epoch"].as_u64().unwrap());
        lives.entry(life).or_default().push(result["seq"].as_u64().unwrap());
    }
    for (life, seqs) in &lives {
        assert_eq!(*seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{life:?}");
    }
    // Who is killed before it has read its plan has no earlier life.
    let named: BTreeSet<&str> = lives.keys().map(|(agent, _)| agent.as_str()).collect();
    assert_eq!(named.len(), usize::from(agents));
    assert!((agents..=agents + killed).contains(&(lives.len() as u16)), "{} lives", lives.len());
    ([away, back], results)
}

#[test]
fn nothing_is_lost_untold_or_counted_twice() {
    let Some(mut fleet) = Fleet::served("nothing_is_lost_untold_or_counted_twice") else { return };
    let work = "[[mesh.work]]\necho = \"udp\"\nevery = \"1s\"\nmessages = 20\n";
    fleet.plan(&format!("hosts = [\"label:site=x\"]\nboth_ways = true\n{work}"));
    let ([away, back], results) = outage(&mut fleet, 3, 1, "30s", 5);
    // Measuring went on without the server, also by the one who was killed.
    for agent in ["h1", "h2", "h3"] {
        let is_meanwhile = |result: &&Value| {
            result["agent"] == agent && (away..back).contains(&result["begin_unix_ns"].as_u64().unwrap())
        };
        let meanwhile = results.iter().filter(is_meanwhile).count();
        assert!(meanwhile >= 3, "{agent}: {meanwhile}");
    }
    let epochs: BTreeSet<u64> = results.iter().map(|result| result["epoch"].as_u64().unwrap()).collect();
    assert_eq!(epochs.len(), 4, "three agents, one of them twice");
    assert!(fleet.told("h2").contains("the NATS server is back"), "{}", fleet.told("h2"));
}

/// Its results count from 1 again, and so does who reads them: what agents say last is heard.
/// The server loses its disk; who gathers looks again so long after it is back.
fn a_lost_disk(test: &'static str, away: Duration) {
    let Some(mut fleet) = Fleet::served(test) else { return };
    fleet.agent("h1", 1, &[]);
    fleet.agent("h2", 2, &[]);
    let work = "[[mesh.work]]\necho = \"udp\"\nevery = \"1s\"\nmessages = 5\n";
    fleet.plan(&format!("hosts = [\"h1\", \"h2\"]\nboth_ways = true\n{work}{work}"));
    let gathering = fleet.command(&["--for", "40s"]).spawn().unwrap();
    fleet.hear("h1", " again and again");
    thread::sleep(Duration::from_secs(3));
    let pid = Pid::from_child(&gathering);
    kill_process(pid, Signal::STOP).unwrap();
    fleet.server = None;
    fs::remove_dir_all(fleet.path("store")).unwrap();
    assert!(fleet.serve());
    thread::sleep(away);
    kill_process(pid, Signal::CONT).unwrap();
    let output = gathering.wait_with_output().unwrap();
    let document = parse(&output);
    assert!(text(&output.stderr).contains("has lost what it had"), "{}", text(&output.stderr));
    assert_eq!(document["results"]["unclosed"], serde_json::json!([]), "{document:#}\n{}", text(&output.stderr));
}

#[test]
fn a_server_that_lost_its_disk_is_read_from_its_beginning() {
    a_lost_disk("a_server_that_lost_its_disk_is_read_from_its_beginning", Duration::ZERO);
}

/// By then it has more results than there were before.
#[test]
fn a_server_that_lost_its_disk_long_ago_is_read_from_its_beginning() {
    a_lost_disk("a_server_that_lost_its_disk_long_ago_is_read_from_its_beginning", Duration::from_secs(15));
}

/// An outage with 200 agents (`TAUT_AGENTS`): some 400 processes. What is alone stays alone.
#[test]
fn of_two_hundred_agents_nothing_is_lost_untold() {
    if !long() {
        return;
    }
    let Some(mut fleet) = Fleet::served("of_two_hundred_agents_nothing_is_lost_untold") else { return };
    let agents = std::env::var("TAUT_AGENTS").map_or(200, |text| text.parse().expect("a number"));
    let works = "[[mesh.work]]\necho = \"udp\"\nevery = \"15s\"\nmessages = 20\n\
                 [[mesh.work]]\nstream = \"tcp\"\nevery = \"1min\"\ntime = \"100ms\"\n";
    fleet.plan(&format!("hosts = [\"label:site=x\"]\npairs = \"k=2\"\n{works}"));
    let (_, results) = outage(&mut fleet, agents, agents / 10, "60s", 5);
    let alone = assert_alone(&results, &[1]);
    println!("{alone} of them were alone on their hosts");
    assert!(alone > usize::from(agents) / 2, "{alone}");
}

/// An outage for longer than any lease holds, that of who gave the plan among them.
#[test]
fn an_outage_longer_than_leases_ends_no_run() {
    if !long() {
        return;
    }
    let Some(mut fleet) = Fleet::served("an_outage_longer_than_leases_ends_no_run") else { return };
    let work = "[[mesh.work]]\necho = \"udp\"\nevery = \"1s\"\nmessages = 20\n";
    fleet.plan(&format!("hosts = [\"label:site=x\"]\nboth_ways = true\n{work}"));
    outage(&mut fleet, 3, 1, "70s", 40);
}

/// A figure of a page for Prometheus, by its name and its labels.
fn figure(url: &str, name: &str) -> f64 {
    let page = ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap();
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}: {page}")).parse().unwrap()
}

/// An agent's own figures: exact where each pair is measured once, and while its server is away.
#[test]
fn an_agent_tells_what_it_does() {
    let Some(mut fleet) = Fleet::served("an_agent_tells_what_it_does") else { return };
    fleet.agent("h1", 1, &["--every", "500ms", "--prometheus", "0", "--jsonl", "lines"]);
    fleet.agent("h2", 2, &[]);
    let told = fleet.told("h1");
    let url = told.lines().find_map(|line| line.split_once("metrics at ")).unwrap().1.to_owned();
    let value = |name: &str| figure(&url, name);
    let pair = |name: &str, more: &str| value(&format!("{name}{{peer=\"h2\",work=\"0\",what=\"echo udp\"{more}}}"));
    wait_for("connected", || value("taut_agent_connected") == 1.0, || fleet.told("h1"));

    // The stream is not among what it allows.
    let hosts = "hosts = [\"h1\", \"h2\"]\nboth_ways = true\n";
    let works = "[[mesh.work]]\necho = \"udp\"\nmessages = 20\n[[mesh.work]]\nstream = \"tcp\"\n";
    fleet.plan(&format!("{hosts}{works}"));
    let output = fleet.run(&["--out", "measured"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    wait_for("told", || value("taut_agent_results_taken_total") == 2.0, || fleet.told("h1"));
    for (name, expected) in [
        ("taut_agent_measurements_begun_total", 1.0),
        ("taut_agent_measurements_ended_total{how=\"measured\"}", 1.0),
        ("taut_agent_measurements_ended_total{how=\"failed\"}", 0.0),
        ("taut_agent_measurements_ended_total{how=\"stopped\"}", 0.0),
        ("taut_agent_measurements_not_begun_total{why=\"refused\"}", 1.0),
        ("taut_agent_measurements_not_begun_total{why=\"unreached\"}", 0.0),
        ("taut_agent_results_waiting", 0.0),
        ("taut_agent_results_dropped_total", 0.0),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    assert_eq!([pair("taut_pair_messages_total", ""), pair("taut_pair_lost_messages_total", "")], [20.0, 0.0]);
    let results = fleet.results();
    let result = results.iter().find(|result| result["agent"] == "h1" && result["what"] == "measured").unwrap();
    let p50 = result["measured"]["rtt_ns"]["p50"].as_f64().unwrap() / 1e9;
    let told = pair("taut_pair_last_round_trip_seconds", ",quantile=\"0.5\"");
    assert!((told - p50).abs() < 1e-12, "{told} for {p50}");

    // It goes on without its server, and says so.
    fleet.plan(&format!("{hosts}[[mesh.work]]\necho = \"udp\"\nevery = \"1s\"\nmessages = 5\n"));
    let gathering = fleet.command(&["--for", "20s"]).spawn().unwrap();
    wait_for("at work", || value("taut_agent_measurements_begun_total") >= 3.0, || fleet.told("h1"));
    fleet.server = None;
    let is_away = || value("taut_agent_connected") == 0.0 && value("taut_agent_results_waiting") >= 2.0;
    wait_for("away", is_away, || fleet.told("h1"));
    assert!(fleet.serve());
    let is_back = || value("taut_agent_connected") == 1.0 && value("taut_agent_results_waiting") == 0.0;
    wait_for("back", is_back, || fleet.told("h1"));
    let output = gathering.wait_with_output().unwrap();
    let document = parse(&output);
    assert_eq!((&document["results"]["dropped"], &document["results"]["missing"]), (&0.into(), &0.into()));
    // The page is that of the last interval: until it has all that was, and another one has begun since.
    let intervals = || fs::read_to_string(fleet.path("lines")).unwrap().lines().count();
    let before = intervals();
    wait_for("told", || intervals() >= before + 2, || fleet.told("h1"));
    // All that was found was taken.
    let found = || {
        let ended = ["measured", "failed"].map(|how| format!("taut_agent_measurements_ended_total{{how=\"{how}\"}}"));
        let not =
            ["refused", "unreached"].map(|why| format!("taut_agent_measurements_not_begun_total{{why=\"{why}\"}}"));
        ended.iter().chain(&not).map(|name| value(name)).sum::<f64>()
    };
    wait_for("taken", || value("taut_agent_results_taken_total") == found(), || fleet.told("h1"));
    let sums = ["taut_agent_measurements_begun_total", "taut_agent_results_taken_total"].map(value);
    let messages = pair("taut_pair_messages_total", "");
    assert!(sums[0] >= 6.0 && messages >= 40.0, "{sums:?} {messages}");

    // Its lines are of the same, and add up to it.
    fleet.agents.get_mut("h1").unwrap().signal(Signal::TERM);
    let schema = jsonschema::validator_for(&taut_report::schema()).unwrap();
    let written = fs::read_to_string(fleet.path("lines")).unwrap();
    let lines: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| schema.is_valid(line) && line["agent"] == "h1" && line["command"] == "agent"));
    let sum = |key: &str| lines.iter().map(|line| line[key].as_f64().unwrap()).sum::<f64>();
    assert_eq!([sum("begun"), sum("results_taken")], sums);
    let rows = lines.iter().flat_map(|line| line["results"].as_array().unwrap());
    assert_eq!(rows.map(|row| row["messages"].as_f64().unwrap()).sum::<f64>(), messages);
    let was_away = |line: &Value| line["connected"] == false && line["results_waiting"].as_u64() > Some(0);
    assert!(lines.iter().any(was_away), "{written}");
}

/// Processor time of all threads of a process, in nanoseconds.
fn processor_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
    tasks.map(|task| of(task).split(' ').next().map_or(0, |ns| ns.parse().unwrap_or(0))).sum()
}

/// A figure of a process's memory, in bytes.
fn memory(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
    line.trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

/// What a process has for itself (RssAnon and RssShmem, proc(5)): not the pages of the program (RssFile), which all
/// share, and which the kernel takes back when it needs them.
fn own_bytes(pid: u32) -> u64 {
    memory(pid, "RssAnon") + memory(pid, "RssShmem")
}

/// How often the threads of a process have gone to sleep.
fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).unwrap_or_default();
    let count = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |count| count.trim().parse().unwrap_or(0))
    };
    tasks.map(|task| count(of(task))).sum::<u64>()
}

/// While it has nothing to do, with its server: both together have at most 8 MiB of memory of their own, and take at
/// most 0.2 % of a processor.
#[test]
fn an_idle_agent_needs_little() {
    let Some(mut fleet) = Fleet::served("an_idle_agent_needs_little") else { return };
    fleet.agent("h1", 1, &[]);
    let agent = fleet.agents["h1"].child.id();
    let server = children(agent);
    assert_eq!(server.len(), 1);
    thread::sleep(Duration::from_secs(1));
    let processes = [agent, server[0]];
    let (begin, before, slept) = (Instant::now(), processes.map(processor_ns), processes.map(sleeps));
    thread::sleep(Duration::from_secs(if long() { 60 } else { 10 }));
    let lasted = begin.elapsed().as_nanos() as f64;
    let shares = [0, 1].map(|at| (processor_ns(processes[at]) - before[at]) as f64 / lasted);
    let (own, all) = (processes.map(own_bytes), processes.map(|pid| memory(pid, "VmRSS")));
    let percent = shares.map(|share| format!("{:.3} %", share * 100.0));
    let wakes = [0, 1].map(|at| (sleeps(processes[at]) - slept[at]) as f64 * 1e9 / lasted);
    println!("agent and its server: {percent:?} of a processor, {wakes:.1?} times a second");
    println!(
        "agent and its server: {own:?} bytes of their own (RssAnon and RssShmem); resident, shared or not: {all:?}"
    );
    assert!(own.iter().sum::<u64>() <= 8 << 20, "{own:?}");
    assert!(wakes[0] <= 10.0 && wakes[1] <= 5.0, "{wakes:.1?} times a second");
    assert!(shares.iter().sum::<f64>() <= 0.002, "{percent:?}, {wakes:.1?} times a second");
}

/// Its measurement ends with it, and its leases 30 s after it prolonged them last.
#[test]
fn the_lease_of_a_killed_agent_is_free_after_its_age() {
    let Some(mut fleet) = Fleet::served("the_lease_of_a_killed_agent_is_free_after_its_age") else { return };
    fleet.agent("h1", 1, ALL);
    fleet.agent("h2", 2, ALL);
    fleet.plan("hosts = [\"h1\", \"h2\"]\n[[mesh.work]]\nstream = \"tcp\"\ntime = \"9s\"\n");
    let gathering = fleet.command(&["--out", "measured"]).spawn().unwrap();
    let asks = |fleet: &Fleet| ["h1", "h2"].into_iter().find(|name| fleet.told(name).contains(": 1 measurements"));
    wait_for("a measurement", || asks(&fleet).is_some(), || fleet.told("h1"));
    let name = asks(&fleet).unwrap();
    thread::sleep(Duration::from_secs(3));
    let parent = fleet.agents[name].child.id();
    let children: Vec<u32> = children(parent).into_iter().filter(|pid| command_of(*pid).contains("stream")).collect();
    assert_eq!(children.len(), 1, "its measurement runs");
    fleet.agents.get_mut(name).unwrap().signal(Signal::KILL);
    let killed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    wait_for("gone", || !command_of(children[0]).contains("stream"), || command_of(children[0]));
    let arguments = fleet.agents[name].arguments.clone();
    fleet.start(name, arguments);
    let output = gathering.wait_with_output().unwrap();
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(0), "{document:#}\n{}", text(&output.stderr));
    let results = fleet.results();
    let begin = results.iter().find(|result| result["what"] == "measured").unwrap()["begin_unix_ns"].as_u64().unwrap();
    let free_after = (begin - killed) as f64 / 1e9;
    println!("free {free_after:.1} s after its holder was killed");
    // Taken or prolonged up to 7 s before, and asked for again every 0.3 to 0.6 s.
    assert!((20.0..36.0).contains(&free_after), "{free_after} s");
}

/// One runs at a time, and what it began ends with it. A server that died is there again meanwhile.
#[test]
fn an_interrupt_takes_the_plan_back() {
    let Some(mut fleet) = Fleet::served("an_interrupt_takes_the_plan_back") else { return };
    for number in 1..=2 {
        let name = format!("h{number}");
        fleet.agent(&name, number, ALL);
        let serves = |fleet: &Fleet| {
            let children = children(fleet.agents[&name].child.id());
            children.into_iter().filter(|pid| command_of(*pid).contains("serve")).collect::<Vec<_>>()
        };
        let server = i32::try_from(serves(&fleet)[0]).unwrap();
        let mut raw = Raw::connect(&fleet);
        raw.say(b"SUB $KV.taut_agents.> 1\r\n");
        raw.settle();
        kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
        fleet.hear(&name, "and is started again");
        wait_for("served", || !serves(&fleet).is_empty(), || fleet.told(&name));
        // Until it says where it listens now: what it said before may come once more.
        let listens = |bytes: &[u8]| {
            let member: Value = serde_json::from_slice(bytes).unwrap_or_default();
            let place = member["address"].as_str().zip(member["tcp"].as_u64());
            let is_there = place.is_some_and(|(address, port)| TcpStream::connect((address, port as u16)).is_ok());
            is_there && member["name"] == name.as_str()
        };
        while !listens(&raw.message()) {}
    }
    fleet.plan(
        "hosts = [\"h1\", \"h2\"]\n[[mesh.work]]\necho = \"tcp\"\nmessages = 20\n\
         [[mesh.work]]\nstream = \"tcp\"\ntime = \"50s\"\n",
    );
    let gathering = fleet.command(&[]).spawn().unwrap();
    let streams = |fleet: &Fleet| {
        let children = fleet.agents.values().flat_map(|agent| children(agent.child.id()));
        children.filter(|pid| command_of(*pid).contains("stream")).count()
    };
    wait_for("a stream", || streams(&fleet) == 1, || fleet.told("h1") + &fleet.told("h2"));
    let second = fleet.run(&[]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another `taut mesh run` is under way"), "{}", text(&second.stderr));
    assert_eq!(streams(&fleet), 1, "{}", fleet.told("h1") + &fleet.told("h2"));
    kill_process(Pid::from_child(&gathering), Signal::INT).unwrap();
    let output = gathering.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let document = parse(&output);
    assert_eq!((&document["ended"]["how"], reasons(&document, 0)), (&"interrupted".into(), BTreeSet::new()));
    assert_eq!(reasons(&document, 1), BTreeSet::from(["interrupted".to_owned()]), "{document:#}");
    wait_for("ended", || streams(&fleet) == 0, || fleet.told("h1") + &fleet.told("h2"));
    // Both the plan's lease and those of the hosts are free at once.
    fleet.plan("hosts = [\"h1\", \"h2\"]\n[[mesh.work]]\nstream = \"tcp\"\ntime = \"100ms\"\n");
    let begin = Instant::now();
    let output = fleet.run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}
