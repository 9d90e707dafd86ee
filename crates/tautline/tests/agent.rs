//! Agents on a NATS server: each pair is measured, nothing is lost untold or counted twice, leases hold and end, and
//! neither a plan nor anybody on the bus makes an agent do what it does not allow.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::brokers::{Certificates, NatsServer};
use support::{free_port, has, long, parse, run, skip, taut, text};
use tempfile::TempDir;

/// A nats-server that keeps what it has, and agents on it.
struct Fleet {
    test: &'static str,
    server: Option<NatsServer>,
    port: u16,
    /// Of the server, and how agents get in.
    options: Vec<String>,
    query: String,
    agents: BTreeMap<String, Agent>,
    directory: TempDir,
}

struct Agent {
    child: Child,
    arguments: Vec<String>,
}

impl Agent {
    fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Fleet {
    fn new(test: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (options, query) = (Vec::new(), String::new());
        Self { test, server: None, port: free_port(), options, query, agents: BTreeMap::new(), directory }
    }

    /// `None`, and the test counted as skipped, where there is no nats-server.
    fn served(test: &'static str) -> Option<Self> {
        let mut fleet = Self::new(test);
        fleet.serve().then_some(fleet)
    }

    fn serve(&mut self) -> bool {
        let store = self.path("store");
        let mut options = vec!["-js", "-sd", store.to_str().unwrap()];
        options.extend(self.options.iter().map(String::as_str));
        self.server = NatsServer::start(self.test, self.port, &options);
        self.server.is_some()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn on(&self) -> String {
        format!("nats://127.0.0.1:{}{}", self.port, self.query)
    }

    /// Starts an agent at an address of its own, and waits until it is there.
    fn agent(&mut self, name: &str, number: u16, more: &[&str]) {
        self.begin(name, number, more);
        self.hear(name, "is on nats://");
    }

    fn begin(&mut self, name: &str, number: u16, more: &[&str]) {
        let address = format!("127.0.{}.{}", number / 200, number % 200 + 1);
        let arguments = ["agent", "--on", &self.on(), "--name", name, "--address", &address];
        let arguments = arguments.iter().chain(more).map(|&word| word.to_owned()).collect();
        self.start(name, arguments);
    }

    fn start(&mut self, name: &str, arguments: Vec<String>) {
        let log = File::options().create(true).append(true).open(self.log(name)).unwrap();
        let mut command = taut();
        let child = command.current_dir(self.directory.path()).args(&arguments).stderr(log).spawn().unwrap();
        self.agents.insert(name.to_owned(), Agent { child, arguments });
    }

    fn log(&self, name: &str) -> PathBuf {
        self.path(&format!("{}.log", name.replace('/', "_")))
    }

    fn told(&self, name: &str) -> String {
        fs::read_to_string(self.log(name)).unwrap_or_default()
    }

    fn hear(&self, name: &str, what: &str) {
        wait_for(what, || self.told(name).contains(what), || self.told(name));
    }

    fn three(&mut self, more: &[&str]) {
        for number in 1..=3 {
            self.agent(&format!("h{number}"), number, more);
        }
    }

    fn plan(&self, rest: &str) {
        fs::write(self.path("mesh.toml"), format!("[mesh]\n{rest}")).unwrap();
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = taut();
        command.current_dir(self.directory.path()).args(["mesh", "run", "mesh.toml", "--on", &self.on(), "--json"]);
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    /// The results that were kept, as they came.
    fn results(&self) -> Vec<Value> {
        let lines = fs::read_to_string(self.path("measured/results.jsonl")).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool, found: impl Fn() -> String) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "not {what}: {}", found());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Says something to a server that no Tautline would say.
struct Raw {
    reader: BufReader<TcpStream>,
}

impl Raw {
    fn connect(fleet: &Fleet) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", fleet.port)).unwrap();
        let mut raw = Self { reader: BufReader::new(stream) };
        raw.say(b"CONNECT {\"verbose\":false}\r\n");
        raw
    }

    fn say(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    fn publish(&mut self, subject: &str, payload: &[u8]) {
        self.say(format!("PUB {subject} {}\r\n", payload.len()).as_bytes());
        self.say(payload);
        self.say(b"\r\n");
    }

    /// Waits until the server has all of it.
    fn settle(&mut self) {
        self.say(b"PING\r\n");
        let mut line = String::new();
        while !line.starts_with("PONG") {
            line.clear();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "the server hung up");
            assert!(!line.starts_with("-ERR"), "{line}");
        }
    }
}

fn pairs(document: &Value, work: usize) -> &Vec<Value> {
    document["works"][work]["pairs"].as_array().unwrap()
}

/// What could not be measured, and why.
fn reasons(document: &Value, work: usize) -> BTreeSet<String> {
    let failed = pairs(document, work).iter().filter(|pair| pair["reached"]["how"] != "measured");
    failed.map(|pair| pair["reached"]["why"].as_str().unwrap().to_owned()).collect()
}

/// No two results of works that are alone share a host and a moment. Returns how many there are.
fn assert_alone(results: &[Value], works: &[u64]) -> usize {
    let is_alone = |result: &&Value| result["what"] == "measured" && works.contains(&result["work"].as_u64().unwrap());
    let alone: Vec<&Value> = results.iter().filter(is_alone).collect();
    let hosts = |result: &Value| [result["agent"].clone(), result["peer"].clone()];
    let time = |result: &Value, key: &str| result[key].as_u64().unwrap();
    for (number, one) in alone.iter().enumerate() {
        for other in &alone[number + 1..] {
            let shared = hosts(one).iter().any(|host| hosts(other).contains(host));
            let apart = time(one, "end_unix_ns") <= time(other, "begin_unix_ns")
                || time(other, "end_unix_ns") <= time(one, "begin_unix_ns");
            assert!(!shared || apart, "{one}\n{other}");
        }
    }
    alone.len()
}

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
    assert_eq!(assert_alone(&fleet.results(), &[0]), 6);

    let schema: Value = serde_json::from_slice(&taut().args(["generate", "schema"]).output().unwrap().stdout).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    let again = taut().args(["mesh", "report"]).arg(fleet.path("measured")).output().unwrap();
    let told = text(&again.stdout);
    assert!(told.starts_with("12 of 12 measurements between 3 hosts in "), "{told}");
    assert!(told.contains("18 results taken, 0 lost") && told.contains("→ pace: "), "{told}");

    // At its end an agent says that it is gone.
    fleet.agents.get_mut("h3").unwrap().signal(Signal::TERM);
    fleet.plan("hosts = [\"h1\", \"h2\", \"h3\"]\npatience = \"1s\"\n[[mesh.work]]\necho = \"tcp\"\nmessages = 9\n");
    let output = fleet.run(&[]);
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(document["hosts"][2]["failed"], "no agent of that name is there");
    assert_eq!(reasons(&document, 0), BTreeSet::from(["h3 is not there".to_owned()]));
}

/// A run in whose middle the server is killed and away for 5 s, while some of the agents are killed that have results
/// to send. Checks that nothing is lost or counts twice, and returns when the server went and came, and the results.
fn outage(fleet: &mut Fleet, agents: u16, killed: u16, run: &str) -> ([u64; 2], Vec<Value>) {
    let name = |number: u16| format!("h{number}");
    for number in 1..=agents {
        let state = fleet.path(&format!("state{number}"));
        fleet.begin(&name(number), number, &["--label", "site=x", "--state", state.to_str().unwrap()]);
    }
    (1..=agents).for_each(|number| fleet.hear(&name(number), "is on nats://"));
    let gathering = fleet.command(&["--for", run, "--out", "measured"]).spawn().unwrap();
    fleet.hear("h1", " again and again");
    thread::sleep(Duration::from_secs(5));
    fleet.server = None;
    let unix_ns = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let away = unix_ns();
    thread::sleep(Duration::from_secs(3));
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
    assert_eq!(output.status.code(), Some(0), "{document:#}\n{}", text(&output.stderr));
    let account = &document["results"];
    let of = |key: &str| account[key].as_u64().unwrap();
    assert_eq!((of("dropped"), of("missing"), &account["unclosed"]), (0, 0, &serde_json::json!([])), "{account}");
    println!("{agents} agents, {killed} killed: {account}");
    let results = fleet.results();
    assert_eq!(results.iter().filter(|result| result["what"] != "closed").count() as u64, of("taken"));
    // Each life of an agent is there from its first result to its last, each once and in their order.
    let mut lives: BTreeMap<(String, u64), Vec<u64>> = BTreeMap::new();
    for result in &results {
        let life = (result["agent"].as_str().unwrap().to_owned(), result["epoch"].as_u64().unwrap());
        lives.entry(life).or_default().push(result["seq"].as_u64().unwrap());
    }
    for (life, seqs) in &lives {
        assert_eq!(*seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{life:?}");
    }
    // Who is killed before its first result has no earlier life.
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
    let ([away, back], results) = outage(&mut fleet, 3, 1, "22s");
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

/// The same with 200 agents: some 400 processes.
#[test]
fn of_two_hundred_agents_nothing_is_lost_untold() {
    if !long() {
        return;
    }
    let Some(mut fleet) = Fleet::served("of_two_hundred_agents_nothing_is_lost_untold") else { return };
    let work = "[[mesh.work]]\necho = \"udp\"\nevery = \"15s\"\nmessages = 20\n";
    fleet.plan(&format!("hosts = [\"label:site=x\"]\npairs = \"k=4\"\n{work}"));
    outage(&mut fleet, 200, 20, "45s");
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
        kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
        fleet.hear(&name, "and is started again");
        wait_for("served", || !serves(&fleet).is_empty(), || fleet.told(&name));
    }
    // It says where it listens now before anybody asks.
    thread::sleep(Duration::from_secs(1));
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
    assert_eq!(streams(&fleet), 1);
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

fn children(parent: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let mut all: Vec<u32> = list.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    // Threads have children of their own.
    for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(list.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn command_of(pid: u32) -> String {
    text(&fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default())
}

#[test]
fn an_agent_s_own_limits_win() {
    let Some(mut fleet) = Fleet::served("an_agent_s_own_limits_win") else { return };
    let more = ["--allow", "echo", "--max-rate", "50", "--max-time", "2s"];
    fleet.agent("h1", 1, &more);
    fleet.agent("h2", 2, &more);
    let echo = |more: &str| format!("[[mesh.work]]\necho = \"udp\"\nmessages = 20\n{more}\n");
    fleet.plan(&format!(
        "hosts = [\"h1\", \"h2\"]\n[[mesh.work]]\nstream = \"tcp\"\ntime = \"1s\"\n{}{}{}{}",
        echo(""),
        echo("rate = 51.0"),
        echo("rate = 5.0"),
        echo("rate = 50.0\nwarn = \"p50 > 1ns\"\nexplain = true"),
    ));
    let output = fleet.run(&["--out", "measured"]);
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(1), "{document:#}");
    for (work, why) in [
        (0, "refused there: stream is not among what this agent allows (echo)"),
        (1, "refused there: this agent sends at most 50 messages a second: give the work a `rate`"),
        (2, "refused there: 51 messages a second are more than this agent sends (50)"),
        (3, "refused there: it takes 4s, and this agent measures for 2s"),
    ] {
        assert_eq!(reasons(&document, work), BTreeSet::from([why.to_owned()]), "{document:#}");
    }
    let measured = &pairs(&document, 4)[0];
    assert_eq!((&measured["reached"]["how"], &measured["measured"]["sent"]), (&"measured".into(), &20.into()));
    let looked_into = measured["explained"]["failed"].as_str().unwrap();
    assert!(looked_into.contains("pace is not among what this agent allows"), "{looked_into}");

    // Another network, and another hour.
    let hour = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 3600 % 24;
    let later = format!("{:02}:00-{:02}:30", (hour + 2) % 24, (hour + 2) % 24);
    fleet.agents.clear();
    fleet.plan(&format!("hosts = [\"n1\", \"n2\"]\n{}", echo("")));
    for (more, why) in [
        (["--peers", "10.0.0.0/8,127.0.1.0/24"], "is in none of the networks that this agent asks"),
        (["--hours", later.as_str()], "this agent measures from"),
    ] {
        fleet.agent("n1", 1, &more);
        fleet.agent("n2", 2, &more);
        let document = parse(&fleet.run(&[]));
        assert!(reasons(&document, 0).iter().all(|found| found.contains(why)), "{document:#}");
        assert_eq!(reasons(&document, 0).len(), 1);
        fleet.agents.values_mut().for_each(|agent| agent.signal(Signal::TERM));
        fleet.agents.clear();
    }
}

#[test]
fn names_and_plans_are_data_whoever_writes_them() {
    let Some(mut fleet) = Fleet::served("names_and_plans_are_data_whoever_writes_them") else { return };
    let odd = r#"a *.>;$(touch ran)`touch ran`"&'x"#;
    fleet.agent(odd, 1, &[]);
    fleet.agent("h2", 2, &[]);
    // What stands there has nothing that could be run, and an agent that can't read it says so and goes on.
    let mut raw = Raw::connect(&fleet);
    let task = r#"{"work":0,"peer":"h2","run":"touch ran"}"#;
    let plan = |works: &str, task: &str| {
        format!(
            r#"{{"form":1,"plan":"x","once":true,"seconds":60,"per_host":4,"patience_ms":1000,"has_leases":false,"works":[{works}],"tasks":[{task}]}}"#
        )
    };
    let work = r#"{"echo":"udp; touch ran","messages":1}"#;
    for (plan, why) in [
        ("{ no JSON".to_owned(), "a plan can't be read"),
        (plan(r#"{"echo":"udp"}"#, task), "unknown field `run`"),
        (plan(work, ""), "unknown variant `udp; touch ran`"),
        (plan(r#"{"echo":"udp","messages":99999999}"#, ""), "from 1 to 1000000"),
        (plan(r#"{"echo":"udp"}"#, r#"{"work":7,"peer":"h2"}"#), "that no mesh has"),
        ("[".repeat(900_000), "a plan can't be read"),
    ] {
        raw.publish("$KV.taut_plan.h2", plan.as_bytes());
        raw.publish("taut.plan.h2", b"");
        raw.settle();
        fleet.hear("h2", why);
    }
    // Entries and results that are none, and hints without end.
    raw.publish("$KV.taut_agents.x", b"\xff\xfe");
    raw.publish("$KV.taut_agents.h9", br#"{"form":1,"name":"h2","address":"$(touch ran)","taut":"0","epoch":1}"#);
    (0..20_000).for_each(|_| raw.publish("taut.plan.h2", b"hint"));
    raw.settle();

    let quoted = toml_string(odd);
    fleet.plan(&format!(
        "hosts = [{{ name = {quoted}, address = \"127.0.0.1\" }}, \"h2\"]\nboth_ways = true\n\
         [[mesh.work]]\necho = \"tcp\"\nmessages = 20\n[[mesh.work]]\necho = \"udp\"\nmessages = 5\nrate = 5.0\n"
    ));
    let gathering = fleet.command(&["--out", "measured"]).spawn().unwrap();
    fleet.hear("h2", ": 2 measurements");
    let forged = r#"{"form":1,"agent":"h2","epoch":1,"seq":5,"before":9,"dropped":0,"plan":"p","begin_unix_ns":0,"end_unix_ns":0,"what":"closed"}"#;
    for (subject, bytes) in [
        ("taut.result.h2", &b"{"[..]),
        ("taut.result.h2", forged.as_bytes()),
        ("taut.result.other", forged.replace("\"before\":9", "\"before\":0").as_bytes()),
        ("taut.result.h2", &[0; 100_000]),
    ] {
        raw.publish(subject, bytes);
    }
    raw.settle();
    let output = gathering.wait_with_output().unwrap();
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(0), "{document:#}\n{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("2 entries of taut_agents are no agents"), "{}", text(&output.stderr));
    assert_eq!((&document["results"]["taken"], &document["results"]["strange"]), (&4.into(), &4.into()));
    assert!(fs::read_dir(fleet.directory.path()).unwrap().all(|entry| entry.unwrap().file_name() != "ran"));
    // It has not kept what it was flooded with.
    let status = fs::read_to_string(format!("/proc/{}/status", fleet.agents["h2"].child.id())).unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kib: u64 = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 16 << 10, "{kib} KiB");
}

fn toml_string(text: &str) -> String {
    // A JSON string is a TOML string.
    serde_json::to_string(text).unwrap()
}

#[test]
fn over_tls_and_with_a_password() {
    let mut fleet = Fleet::new("over_tls_and_with_a_password");
    let certificates = Certificates::new();
    fleet.options = certificates.options("server").to_vec();
    fleet.options.extend(["--user", "ann", "--pass", "secret"].map(str::to_owned));
    if !fleet.serve() {
        return;
    }
    let password = |text: &str| {
        let path = fleet.path(text);
        fs::write(&path, format!("{text}\n")).unwrap();
        format!("?user=ann&password-file={}&ca={}", path.display(), certificates.path("root.pem"))
    };
    let (right, wrong) = (password("secret"), password("guess"));
    let stranger = right.replace("root.pem", "alone.pem");
    fleet.plan("hosts = [\"h1\", \"h2\"]\n[[mesh.work]]\necho = \"udp\"\nmessages = 20\n");
    for (name, query, why) in [("w1", wrong, "authorization violation"), ("w2", stranger, "certificate")] {
        fleet.query = query;
        let on = fleet.on();
        fleet.start(name, ["agent", "--on", &on, "--name", name].map(str::to_owned).to_vec());
        fleet.hear(name, why);
    }
    fleet.query = right;
    fleet.agent("h1", 1, &[]);
    fleet.agent("h2", 2, &[]);
    let output = fleet.run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(!text(&output.stdout).contains("secret\n"));
}

#[test]
fn the_unit_is_valid_and_starts_what_is_understood() {
    if !has("systemd-analyze") {
        return skip("the_unit_is_valid_and_starts_what_is_understood", "no systemd-analyze");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/taut-agent.service");
    let unit = fs::read_to_string(file).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let service = directory.path().join("taut-agent.service");
    // The man page is not installed here.
    let here = unit.replace("/usr/bin/taut", env!("CARGO_BIN_EXE_taut")).replace("Documentation=", "#");
    fs::write(&service, here).unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(&service).output().unwrap();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", text(&verified.stderr));
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/taut ")).unwrap();
    let line = start.replace("%S", directory.path().to_str().unwrap()).replace("$TAUT_AGENT", "--on nats://[::1]:0");
    // It is understood up to the port that no server has.
    let output = run(&format!("{line} --address $"));
    assert!(text(&output.stderr).contains("an address is an IP address"), "{}", text(&output.stderr));
}

#[test]
fn who_comes_before_the_server_waits_and_says_so() {
    let mut fleet = Fleet::new("who_comes_before_the_server_waits_and_says_so");
    fleet.plan("hosts = [\"h1\", \"h2\"]\n[[mesh.work]]\necho = \"udp\"\nmessages = 20\n");
    for number in 1..=2 {
        let arguments = ["agent", "--on", &fleet.on(), "--name", &format!("h{number}"), "--address"];
        let address = format!("127.0.0.{number}");
        let arguments = arguments.iter().chain(&[address.as_str()]).map(|&word| word.to_owned()).collect();
        fleet.start(&format!("h{number}"), arguments);
    }
    fleet.hear("h1", &format!("no NATS server at {}: ", fleet.on()));
    let gathering = fleet.command(&[]).spawn().unwrap();
    thread::sleep(Duration::from_secs(1));
    if !fleet.serve() {
        drop(gathering.wait_with_output());
        return;
    }
    let output = gathering.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stderr).contains("no NATS server at"), "{}", text(&output.stderr));
    let told = fleet.told("h1");
    assert_eq!(told.matches("no NATS server at").count(), 1, "{told}");

    // A name belongs to one: the other ends and says why.
    let address = ["--address", "127.0.0.9"];
    let arguments: Vec<String> =
        ["agent", "--on", &fleet.on(), "--name", "h1"].iter().chain(&address).map(|&word| word.to_owned()).collect();
    let mut first = fleet.agents.remove("h1").unwrap();
    fleet.start("h1", arguments);
    let code = first.child.wait().unwrap().code();
    assert_eq!(code, Some(1), "{}", fleet.told("h1"));
    assert!(fleet.told("h1").contains("another agent called h1 has begun"), "{}", fleet.told("h1"));
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_write() {
    let fleet = Fleet::new("what_makes_no_sense_is_refused_with_what_to_write");
    fleet.plan("hosts = [\"h1\", \"h2\"]\nruns = 3\n[[mesh.work]]\necho = \"udp\"\n");
    let refused = |command: &mut Command, why: &str| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    };
    refused(&mut fleet.command(&[]), "unknown field `runs`");
    refused(&mut fleet.command(&["--via", "ssh {host}"]), "cannot be used with");
    let agent = |arguments: &[&str]| {
        let mut command = taut();
        command.args(["agent"]).args(arguments);
        command
    };
    refused(&mut agent(&[]), "--on");
    let on = ["--on", "nats://127.0.0.1:1"];
    for (more, why) in [
        (["--name", "a\u{1b}[2J"], "a host's name has 1 to 253 bytes"),
        (["--name", "label:x=y"], "no host is called label:"),
        (["--address", "$(x)"], "an address is an IP address or a name"),
        (["--allow", "echo,rm"], "write echo, pace or stream"),
        (["--hours", "9-17"], "22:00-06:00"),
        (["--peers", "10/8"], "10.0.0.0/8"),
        (["--label", "rack"], "NAME=VALUE"),
    ] {
        refused(&mut agent(&[&on[..], &more].concat()), why);
    }
    refused(&mut agent(&["--on", "nats://ann:secret@n1"]), "would be in every recording");
    refused(&mut agent(&["--on", "nats://n1/subject"]), "no");
}
