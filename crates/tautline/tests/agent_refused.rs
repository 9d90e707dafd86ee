//! What agents refuse, whoever asks: work beyond their own limits, plans and names that are no data, servers that don't
//! let them in.

mod agent_support;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use agent_support::{Fleet, Raw, pairs, reasons, wait_for};
use rustix::process::Signal;
use support::brokers::Certificates;
use support::{has, parse, run, skip, taut, text};

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
            r#"{{"form":1,"plan":"x","once":true,"written_unix_s":7,"seconds":60,"per_host":4,"patience_ms":1000,"has_leases":false,"works":[{works}],"tasks":[{task}]}}"#
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
        (plan(r#"{"echo":"udp"}"#, r#"{"work":0,"peer":"h2"}"#), "plan x is of long ago"),
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

/// By the agent's limits or because its clock is wrong: more of them than it keeps.
#[test]
fn each_refusal_is_told_and_none_is_dropped() {
    let Some(mut fleet) = Fleet::served("each_refusal_is_told_and_none_is_dropped") else { return };
    fleet.agent("h1", 1, &[]);
    let mut raw = Raw::connect(&fleet);
    raw.say(b"SUB taut.result.h1 1\r\n");
    raw.settle();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let tasks = vec![r#"{"work":0,"peer":"h2"}"#; 700].join(",");
    for (name, written, why) in [("new", now, "stream is not among"), ("old", now - 90_000, "may be wrong")] {
        let plan = format!(
            r#"{{"form":1,"plan":"{name}","once":true,"written_unix_s":{written},"seconds":60,"per_host":4,"patience_ms":1000,"has_leases":false,"works":[{{"stream":"tcp"}}],"tasks":[{tasks}]}}"#
        );
        raw.publish("$KV.taut_plan.h1", plan.as_bytes());
        raw.publish("taut.plan.h1", b"");
        let mut refused = 0;
        while refused < 700 {
            let result: serde_json::Value = serde_json::from_slice(&raw.message()).unwrap();
            if result["what"] == "closed" {
                // That of the plan before.
                assert_ne!(result["plan"], name, "{refused} refused");
                continue;
            }
            assert_eq!((&result["what"], &result["dropped"]), (&"refused".into(), &0.into()), "{result}");
            assert!(result["why"].as_str().unwrap().contains(why), "{result}");
            refused += 1;
        }
    }
}

/// What was measured can't be measured again: where it can't be kept, it is told all the same.
#[test]
fn what_can_t_be_kept_is_told() {
    let Some(mut fleet) = Fleet::served("what_can_t_be_kept_is_told") else { return };
    fleet.three(&[]);
    let work = "[[mesh.work]]\necho = \"udp\"\nmessages = 20\n";
    fleet.plan(&format!("hosts = [\"h1\", \"h2\", \"h3\"]\nboth_ways = true\n{work}{work}"));
    let measure = fleet.command(&["--out", "measured"]);
    // No file is longer than two blocks: results are, as on a full disk.
    let mut limited = Command::new("sh");
    limited.current_dir(fleet.directory.path()).args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$0\" \"$@\""]);
    let output = limited.arg(measure.get_program()).args(measure.get_args()).output().unwrap();
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(document["ended"]["how"], "failed", "{document:#}");
    assert!(document["ended"]["why"].as_str().unwrap().contains("results.jsonl"), "{document:#}");
    assert_eq!((reasons(&document, 0), &document["results"]["taken"]), (BTreeSet::new(), &12.into()), "{document:#}");
}

/// By a stream of that name that was made for something else, results would never be read.
#[test]
fn a_stream_that_can_t_be_read_from_is_told() {
    let Some(mut fleet) = Fleet::served("a_stream_that_can_t_be_read_from_is_told") else { return };
    let mut raw = Raw::connect(&fleet);
    let stream = r#"{"name":"TAUT","subjects":["taut.result.>"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"discard":"old","storage":"file","num_replicas":1}"#;
    raw.say(b"SUB made 1\r\n");
    raw.say(format!("PUB $JS.API.STREAM.CREATE.TAUT made {}\r\n{stream}\r\n", stream.len()).as_bytes());
    let made = text(&raw.message());
    assert!(made.contains("\"did_create\":true"), "{made}");
    fleet.begin("h1", 1, &[]);
    fleet.hear("h1", "the stream TAUT is there without allow_direct");
}

/// What somebody else wrote meanwhile is somebody else's.
#[test]
fn who_takes_a_plan_back_takes_no_other() {
    let Some(mut fleet) = Fleet::served("who_takes_a_plan_back_takes_no_other") else { return };
    fleet.agent("h1", 1, &[]);
    fleet.agent("h2", 2, &[]);
    fleet.plan(
        "hosts = [\"h1\", \"h2\"]\nboth_ways = true\n\
         [[mesh.work]]\necho = \"udp\"\nevery = \"1s\"\nmessages = 5\n",
    );
    let gathering = fleet.command(&["--for", "8s"]).spawn().unwrap();
    fleet.hear("h2", " again and again");
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let plan = format!(
        r#"{{"form":1,"plan":"x","once":true,"written_unix_s":{now},"seconds":600,"per_host":4,"patience_ms":1000,"has_leases":false,"works":[{{"echo":"udp"}}],"tasks":[]}}"#
    );
    let mut raw = Raw::connect(&fleet);
    raw.publish("$KV.taut_plan.h2", plan.as_bytes());
    raw.publish("taut.plan.h2", b"");
    raw.settle();
    fleet.hear("h2", "plan x: 0 measurements");
    let output = gathering.wait_with_output().unwrap();
    let document = parse(&output);
    assert!(document["results"]["taken"].as_u64() > Some(0), "{document:#}\n{}", text(&output.stderr));
    fleet.hear("h1", "there is nothing to do");
    thread::sleep(Duration::from_secs(1));
    assert!(!fleet.told("h2").contains("there is nothing to do"), "{}", fleet.told("h2"));
}

/// What every server begins with.
const INFO: &[u8] = b"INFO {\"server_id\":\"x\",\"server_name\":\"x\",\"version\":\"2.10.0\",\"host\":\"127.0.0.1\",\
                      \"port\":4222,\"headers\":true,\"max_payload\":1048576,\"proto\":1,\"client_id\":1}\r\n";

/// A server that does this with each connection, and how many came.
fn hostile(serve: fn(TcpStream)) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let came = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&came);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || serve(stream));
        }
    });
    (port, came)
}

/// Says that, and nothing more as long as somebody is there.
fn says(mut stream: TcpStream, bytes: &[u8]) {
    if stream.write_all(bytes).is_ok() {
        let _ = io::copy(&mut stream, &mut io::sink());
    }
}

/// Says that over and over again.
fn endless(mut stream: TcpStream, begin: &[u8]) {
    let _ = stream.write_all(begin);
    while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
}

/// Lets a client in, answers what it asks for with what is no answer, and acknowledges what was never said.
fn acknowledges_wrongly(stream: TcpStream) {
    const WRONG: &str = r#"{"stream":7,"seq":"none"}"#;
    let mut to = stream.try_clone().unwrap();
    let _ = to.write_all(INFO);
    let (mut from, mut line, mut inbox) = (BufReader::new(stream), String::new(), "1".to_owned());
    while from.read_line(&mut line).is_ok_and(|length| length > 0) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words.as_slice() {
            ["PING"] => "PONG\r\n".to_owned(),
            ["SUB", subject, number] if subject.starts_with("_INBOX") => {
                inbox = (*number).to_owned();
                "+OK\r\n+OK\r\n".to_owned()
            }
            ["PUB" | "HPUB", _, reply, .., length] => {
                let mut payload = vec![0; length.parse::<usize>().unwrap() + 2];
                if from.read_exact(&mut payload).is_err() {
                    return;
                }
                // To nobody, and to who asked.
                format!("MSG nobody 4711 2\r\n{{}}\r\nMSG {reply} {inbox} {}\r\n{WRONG}\r\n", WRONG.len())
            }
            _ => String::new(),
        };
        if to.write_all(answer.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

/// Lets a client in, says that, and ends.
fn lets_in(stream: &TcpStream, then: &[u8]) {
    let (mut to, mut from) = (stream, stream);
    let _ = to.write_all(INFO);
    let is_ping = |line: io::Result<String>| line.is_ok_and(|line| line.starts_with("PING"));
    if BufReader::new(from).lines().any(is_ping) {
        let _ = to.write_all(&[&b"PONG\r\n"[..], then].concat());
    }
    // What it still says is read, or what was said would be taken back (RST).
    let _ = stream.shutdown(Shutdown::Write);
    let _ = io::copy(&mut from, &mut io::sink());
}

/// A server's name, what it does to who connects, and what is said of it.
type Hostile = (&'static str, fn(TcpStream), &'static str);

/// An agent says what is wrong, tries again, and keeps nothing of it.
#[test]
fn bad_servers_get_a_clear_error_and_no_memory() {
    let mut fleet = Fleet::new("bad_servers_get_a_clear_error_and_no_memory");
    let cases: [Hostile; 8] = [
        ("http", |stream| says(stream, b"HTTP/1.1 400 Bad Request\r\n\r\n"), "its first line is `HTTP/1.1 400"),
        ("error", |stream| says(stream, b"-ERR\r\n"), "its first line is `-ERR`"),
        ("endless", |stream| endless(stream, b""), "its first line is `xxx"),
        ("info", |stream| endless(stream, b"INFO {\"server_id\":\""), "its INFO is longer than 65536 bytes"),
        (
            "huge",
            |stream| says(stream, &[&b"INFO {\"server_id\":\""[..], &vec![b'x'; 32 << 20][..], b"\"}\r\n"].concat()),
            "its INFO is longer than 65536 bytes",
        ),
        (
            "half",
            |mut stream| {
                let _ = stream.write_all(&INFO[..20]);
            },
            "no NATS server at nats://127.0.0.1:",
        ),
        ("acks", acknowledges_wrongly, "(JetStream is needed"),
        ("message", |stream| lets_in(&stream, b"MSG a 1 100\r\nabc"), "(JetStream is needed"),
    ];
    let mut came = Vec::new();
    for (name, serve, _) in cases {
        let (port, count) = hostile(serve);
        came.push(count);
        let on = format!("nats://127.0.0.1:{port}");
        let arguments = ["agent", "--on", &on, "--name", name, "--address", "127.0.0.1"];
        fleet.start(name, arguments.map(str::to_owned).to_vec());
    }
    for ((name, _, words), count) in cases.into_iter().zip(came) {
        fleet.hear(name, words);
        fleet.hear(name, "trying again every");
        // Twice, as the first time.
        let told = count.load(Ordering::Relaxed);
        wait_for("tried again", || count.load(Ordering::Relaxed) >= told + 2, || fleet.told(name));
        let agent = fleet.agents.get_mut(name).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", agent.child.id())).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kib: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
        println!("{name}: {kib} KiB at most");
        assert!(kib < 64 << 10, "{name}: {kib} KiB");
        agent.signal(Signal::TERM);
        assert!(!fleet.told(name).contains("panicked"), "{}", fleet.told(name));
    }
}

/// Who is to end does not wait until it has given up on a server that says nothing.
#[test]
fn a_silent_server_keeps_no_agent_from_its_end() {
    let mut fleet = Fleet::new("a_silent_server_keeps_no_agent_from_its_end");
    let (port, came) = hostile(|stream| says(stream, b""));
    let on = format!("nats://127.0.0.1:{port}");
    let arguments = ["agent", "--on", &on, "--name", "h1", "--address", "127.0.0.1"];
    fleet.start("h1", arguments.map(str::to_owned).to_vec());
    wait_for("connected", || came.load(Ordering::Relaxed) > 0, || fleet.told("h1"));
    let begin = Instant::now();
    fleet.agents.get_mut("h1").unwrap().signal(Signal::INT);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}: {}", fleet.told("h1"));
}

/// The client of NATS does not stand every line. An agent without one would be there and hear nothing.
#[test]
fn an_agent_whose_client_breaks_down_ends_and_says_so() {
    let Some(mut fleet) = Fleet::served("an_agent_whose_client_breaks_down_ends_and_says_so") else { return };
    fleet.agent("h1", 1, &[]);
    fleet.server = None;
    let listener = TcpListener::bind(("127.0.0.1", fleet.port)).unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| lets_in(&stream, b"-ERR\r\n")));
    fleet.hear("h1", "the client of NATS has broken down");
    let mut agent = fleet.agents.remove("h1").unwrap();
    assert_eq!(agent.child.wait().unwrap().code(), Some(1), "{}", fleet.told("h1"));
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
    let password = |name: &str, text: &str| {
        let path = fleet.path(name);
        fs::write(&path, format!("{text}\n")).unwrap();
        format!("?user=ann&password-file={}&ca={}", path.display(), certificates.path("root.pem"))
    };
    let (right, wrong) = (password("pw1", "secret"), password("pw2", "guess"));
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
    let output = fleet.run(&["--out", "measured"]);
    assert_eq!(output.status.code(), Some(0), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let kept = ["mesh.json", "results.jsonl"].map(|name| fs::read(fleet.path("measured").join(name)).unwrap());
    let said = ["w1", "w2", "h1", "h2"].map(|name| fleet.told(name).into_bytes());
    for bytes in [output.stdout, output.stderr].iter().chain(&kept).chain(&said) {
        assert!(!bytes.is_empty() && !text(bytes).contains("secret"), "{}", text(bytes));
    }
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
    let mut gathering = fleet.command(&[]).spawn().unwrap();
    let (mut errors, mut said) = (BufReader::new(gathering.stderr.take().unwrap()), String::new());
    while !said.contains("no NATS server at") && errors.read_line(&mut said).unwrap() > 0 {}
    if !fleet.serve() {
        drop(gathering.wait_with_output());
        return;
    }
    let output = gathering.wait_with_output().unwrap();
    errors.read_to_string(&mut said).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}\n{said}", text(&output.stdout));
    assert!(said.contains("no NATS server at"), "{said}");
    let told = fleet.told("h1");
    assert_eq!(told.matches("no NATS server at").count(), 1, "{told}");

    // A name belongs to one: the other ends and says why.
    let address = ["--address", "127.0.0.9"];
    let arguments: Vec<String> =
        ["agent", "--on", &fleet.on(), "--name", "h1"].iter().chain(&address).map(|&word| word.to_owned()).collect();
    let mut first = fleet.agents.remove("h1").unwrap();
    fleet.start("h1", arguments);
    let code = first.child.wait().unwrap().code();
    assert_eq!(code, Some(2), "{}", fleet.told("h1"));
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
        (["--prometheus", "0"], "add --every"),
        (["--every", "1s"], "add one of them"),
    ] {
        refused(&mut agent(&[&on[..], &more].concat()), why);
    }
    refused(&mut agent(&["--on", "nats://n1/subject"]), "so none is written");
    refused(&mut fleet.command(&["--for", "25h"]), "up to 24h");
    for (on, why) in [
        ("nats://ann:secret@n1", "would be in every recording"),
        ("nats://n1?password=secret", "there is no setting password"),
    ] {
        refused(&mut agent(&["--on", on]), why);
        assert!(!text(&agent(&["--on", on]).output().unwrap().stderr).contains("secret"));
    }
}
