//! Meshes: exactly the pairs that are slow or lose are named, nothing runs where a work is to be alone, and what can't
//! be reached or is interrupted leaves nothing behind.

mod explain_support;
mod net_support;
mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use net_support::{named, with_detours};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use support::{is_root, long, parse, skip, taut, text};
use tempfile::TempDir;

/// What failed, to be told by a test that fails.
fn failures(document: &Value) -> Vec<String> {
    let pairs = document["works"].as_array().unwrap().iter().flat_map(|work| work["pairs"].as_array().unwrap());
    let failed = pairs.filter(|pair| pair["reached"]["how"] != "measured").map(ToString::to_string);
    let hosts = document["hosts"].as_array().unwrap().iter().filter(|host| host.get("failed").is_some());
    failed.chain(hosts.map(ToString::to_string)).collect()
}

fn mesh_run(plan: &Path, via: &str, more: &[&str]) -> Output {
    let mut command = taut();
    command.args(["mesh", "run"]).arg(plan).args(["--via", via, "--taut", env!("CARGO_BIN_EXE_taut")]).args(more);
    command.output().unwrap()
}

/// Pairs with their times, of which one may have been alone.
struct Span {
    begin: u64,
    end: u64,
    hosts: [u64; 2],
    racks: [String; 2],
    on_host: bool,
    in_rack: bool,
}

/// All that ran, measurements and looks, from the document alone.
fn spans(document: &Value) -> Vec<Span> {
    let mut spans = Vec::new();
    for work in document["works"].as_array().unwrap() {
        for pair in work["pairs"].as_array().unwrap() {
            let hosts = ["near", "far"].map(|end| pair[end].as_u64().unwrap());
            let racks = hosts.map(|host| document["hosts"][host as usize]["rack"].as_str().unwrap().to_owned());
            let mut add = |of: &Value, on_host: bool, in_rack: bool| {
                let (Some(begin), Some(end)) = (of["begin_ns"].as_u64(), of["end_ns"].as_u64()) else { return };
                spans.push(Span { begin, end, hosts, racks: racks.clone(), on_host, in_rack });
            };
            add(pair, work["alone_on_host"] == true, work["alone_in_rack"] == true);
            add(&pair["explained"], true, true);
        }
    }
    spans
}

fn assert_leases_never_overlap(document: &Value) {
    let spans = spans(document);
    let mut alone = 0;
    for (number, one) in spans.iter().enumerate() {
        alone += usize::from(one.on_host);
        for other in &spans[number + 1..] {
            if one.end <= other.begin || other.end <= one.begin {
                continue;
            }
            let shares_host = one.hosts.iter().any(|host| other.hosts.contains(host));
            let shares_rack = one.racks.iter().any(|rack| other.racks.contains(rack));
            assert!(!(shares_host && (one.on_host || other.on_host)), "{:?} {:?}", one.hosts, other.hosts);
            assert!(!(shares_rack && (one.in_rack || other.in_rack)), "{:?} {:?}", one.racks, other.racks);
        }
    }
    assert!(alone > 0, "nothing was to be alone");
}

const ECHO: &str =
    "[[mesh.work]]\necho = \"udp\"\nmessages = 100\nwarn = \"p50 > 20ms or lost >= 2%\"\nexplain = true\n";

#[test]
fn exactly_the_slow_and_the_lossy_pair_are_named() {
    const NAME: &str = "exactly_the_slow_and_the_lossy_pair_are_named";
    if !is_root() {
        return skip(NAME, "needs root for namespaces");
    }
    let net = match with_detours(8) {
        Ok(net) => net,
        Err(why) => return skip(NAME, &why),
    };
    let stream = "[[mesh.work]]\nstream = \"tcp\"\ntime = \"50ms\"\nalone = [\"host\", \"rack\"]\n";
    let tcp = "[[mesh.work]]\necho = \"tcp\"\nwarn = \"p50 > 20ms\"\nexplain = true\n";
    let plan = net.plan(2, &format!("at_once = 4\n{ECHO}{stream}{tcp}"));
    let (out, page) = (net.path("measured"), net.path("mesh.html"));
    let (out_word, page_word) = (out.to_str().unwrap(), page.to_str().unwrap());
    let output = mesh_run(&plan, "ip netns exec {host}", &["--json", "--out", out_word, "--html", page_word]);
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(3), "{:?}\n{}", failures(&document), text(&output.stderr));

    assert_eq!(named(&net, &document, 0), BTreeSet::from([(1, 4), (2, 5)]), "{}", text(&output.stdout));
    assert!(named(&net, &document, 1).is_empty());
    assert_eq!(named(&net, &document, 2), BTreeSet::from([(1, 4)]), "{}", text(&output.stdout));
    let works = document["works"].as_array().unwrap();
    for work in works {
        let pairs = work["pairs"].as_array().unwrap();
        assert_eq!(pairs.len(), 28);
        assert!(pairs.iter().all(|pair| pair["reached"]["how"] == "measured"), "{}", text(&output.stdout));
    }
    let of = |work: usize, ends: (usize, usize)| {
        let pairs = works[work]["pairs"].as_array().unwrap();
        pairs.iter().find(|pair| net.ends(&document, pair) == ends).unwrap().clone()
    };
    let (slow, slow_tcp, lossy) = (of(0, (1, 4)), of(2, (1, 4)), of(0, (2, 5)));
    assert!(
        slow["measured"]["rtt_ns"]["p50"].as_u64().unwrap() > 60_000_000 && slow["measured"]["lost"] == 0,
        "{slow}"
    );
    assert_eq!(slow["misses"][0]["threshold"], "p50 > 20ms");
    assert!(slow["times_usual"].as_f64().unwrap() > 10.0, "{slow}");
    // The way between the two kernels has the time, and no host is to blame. Of datagrams the peer's kernel does not
    // tell when they came.
    for (pair, layer) in [(&slow, "medium or peer program"), (&slow_tcp, "medium")] {
        let explained = &pair["explained"];
        assert_eq!((&explained["layer"], &explained["findings"]), (&layer.into(), &serde_json::json!([])), "{pair}");
        assert!(explained["layer_share"].as_f64().unwrap() > 0.5, "{pair}");
    }
    assert_eq!(lossy["misses"][0]["threshold"], "lost >= 2%");
    assert!((2..=16).contains(&lossy["measured"]["lost"].as_u64().unwrap()), "{lossy}");
    assert!(lossy["explained"]["lost"].as_u64().unwrap() > 0, "{lossy}");
    assert_leases_never_overlap(&document);

    let schema: Value = serde_json::from_slice(&taut().args(["generate", "schema"]).output().unwrap().stdout).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    // A document for each pair and work, three looks, and the mesh.
    assert_eq!(fs::read_dir(&out).unwrap().count(), 3 * 28 + 3 + 1);
    let page = fs::read_to_string(&page).unwrap();
    assert_eq!((page.matches("<svg").count(), page.matches("<rect").count()), (3, 3 * 28));

    let again = taut().args(["mesh", "report", out_word]).output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    let told = text(&again.stdout);
    assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
    println!("{told}");
    assert!(told.contains("2 pairs are beyond `p50 > 20ms or lost >= 2%`, worst first:"), "{told}");
    let again = taut().args(["mesh", "report", out_word, "--json"]).output().unwrap();
    assert_eq!(parse(&again), document);

    for host in net.hosts() {
        let left = Command::new("ip").args(["netns", "pids", host]).output().unwrap();
        assert_eq!(text(&left.stdout), "", "something still runs on {host}");
    }
}

/// The same with 64 hosts and all 2016 pairs: some 60 s of processor time.
#[test]
fn of_sixty_four_hosts_exactly_two_pairs_are_named() {
    const NAME: &str = "of_sixty_four_hosts_exactly_two_pairs_are_named";
    if !is_root() {
        return skip(NAME, "needs root for namespaces");
    }
    if !long() {
        return;
    }
    let net = match with_detours(64) {
        Ok(net) => net,
        Err(why) => return skip(NAME, &why),
    };
    let plan = net.plan(8, &format!("at_once = 4\npatience = \"60s\"\n{ECHO}"));
    let output = mesh_run(&plan, "ip netns exec {host}", &["--json"]);
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(3), "{:?}\n{}", failures(&document), text(&output.stderr));
    assert_eq!(document["works"][0]["pairs"].as_array().unwrap().len(), 2016);
    assert_eq!(named(&net, &document, 0), BTreeSet::from([(1, 4), (2, 5)]));
    assert_leases_never_overlap(&document);
}

/// Hosts that are all this one, by a shell that does as its first argument says.
struct Stand {
    directory: TempDir,
}

const VIA: &str = r#"sh -c 'printf "%s\n" "$0" >>"$STAND/names"; echo $$ >>"$STAND/pids"
case "$0" in
  gone) echo "no route to host" >&2; exit 255;;
  hung) exec sleep 60;;
  old) [ "$2" = --version ] && { echo "taut 0.0.1"; exit; };;
  chatty) echo "Welcome to chatty"; echo "{ not JSON";;
  deaf) exec "$@" </dev/null;;
esac
exec "$@"' {host}"#;

impl Stand {
    fn new(hosts: &[&str], rest: &str) -> Self {
        let stand = Self { directory: tempfile::tempdir().unwrap() };
        let host =
            |(number, name): (usize, &&str)| format!("{{ name = '''{name}''', address = \"127.0.0.{}\" }}", number + 1);
        let hosts: Vec<String> = hosts.iter().enumerate().map(host).collect();
        fs::write(stand.path("mesh.toml"), format!("[mesh]\nhosts = [{}]\n{rest}", hosts.join(", "))).unwrap();
        stand
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = taut();
        command.current_dir(self.directory.path()).env("STAND", self.directory.path());
        command.args(["mesh", "run", "mesh.toml", "--via", VIA, "--taut", env!("CARGO_BIN_EXE_taut")]).args(more);
        command
    }

    /// Waits until nothing runs any more of all that was started.
    fn assert_nothing_is_left(&self) {
        let pids = fs::read_to_string(self.path("pids")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        for pid in pids.lines().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()) {
            while test_kill_process(pid).is_ok() {
                assert!(Instant::now() < deadline, "{pid:?} still runs");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[test]
fn who_is_not_there_is_named_and_stops_nothing() {
    // A shell would run what is in this name, and a directory would end at it.
    let odd = r#"a b;touch ran>ran|$(touch ran)`touch ran`"&/../x"#;
    // So long that all the others answer on a busy machine, too.
    let rest = "patience = \"10s\"\n[[mesh.work]]\necho = \"tcp\"\nmessages = 20\n";
    let stand = Stand::new(&["a", odd, "gone", "hung", "old", "chatty", "deaf"], rest);
    let output = stand.command(&["--json", "--out", "measured"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document = parse(&output);
    let failed = |name: &str| {
        let hosts = document["hosts"].as_array().unwrap();
        hosts.iter().find(|host| host["name"] == name).unwrap()["failed"].as_str().map(str::to_owned)
    };
    assert_eq!(failed("gone").as_deref(), Some("no route to host"));
    assert_eq!(failed("hung").as_deref(), Some("no answer within 10s"));
    let deaf = failed("deaf").unwrap();
    assert!(deaf.contains("ended with code 0") && deaf.contains("kubectl exec -i"), "{deaf}");
    assert!(["a", odd, "old", "chatty"].iter().all(|name| failed(name).is_none()), "{document}");
    let pairs = document["works"][0]["pairs"].as_array().unwrap();
    let of = |how: &str| pairs.iter().filter(|pair| pair["reached"]["how"] == how).count();
    // Four are there, and each of them has a pair with each other.
    assert_eq!((of("measured"), of("not_run"), pairs.len()), (6, 15, 21), "{document}");
    assert!(text(&output.stderr).contains("taut: gone can't be reached: no route to host\n"));

    let told = text(&taut().args(["mesh", "report"]).arg(stand.path("measured")).output().unwrap().stdout);
    assert!(told.contains("NOT REACHED gone: no route to host. None of its 6 pairs was measured."), "{told}");
    assert!(told.contains("old has taut 0.0.1, and here is"), "{told}");
    let kept = stand.path("measured/mesh.json");
    let output = taut().args(["mesh", "report"]).arg(&kept).arg("--html").arg(&kept).output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--html would write over it"));
    // What is kept is the document alone, without the greeting.
    for kept in fs::read_dir(stand.path("measured")).unwrap() {
        let kept = fs::read(kept.unwrap().path()).unwrap();
        assert!(serde_json::from_slice::<Value>(&kept).is_ok(), "{}", text(&kept));
    }
    let names = fs::read_to_string(stand.path("names")).unwrap();
    assert!(names.lines().any(|line| line == odd), "{names}");
    assert!(!stand.path("ran").exists() && !stand.path("measured/ran").exists());
    stand.assert_nothing_is_left();
}

#[test]
fn an_interrupt_ends_what_runs_over_there_and_prints_what_was_measured() {
    let rest = "[[mesh.work]]\necho = \"tcp\"\nmessages = 20\n[[mesh.work]]\nstream = \"tcp\"\ntime = \"40s\"\n";
    let stand = Stand::new(&["a", "b", "c", "d"], rest);
    let errors = stand.path("stderr");
    let mut command = stand.command(&["--json"]);
    command.stdout(Stdio::piped()).stderr(fs::File::create(&errors).unwrap());
    let child = command.spawn().unwrap();
    let begin = Instant::now();
    // The echoes are over when both streams that can run at once are all that does.
    while !fs::read_to_string(&errors).unwrap().contains("6 of 12 measurements") {
        assert!(begin.elapsed() < Duration::from_secs(30), "{}", fs::read_to_string(&errors).unwrap());
        thread::sleep(Duration::from_millis(20));
    }
    let interrupted = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(interrupted.elapsed() < Duration::from_secs(15), "{:?}", interrupted.elapsed());
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stdout));
    let document = parse(&output);
    assert_eq!(document["ended"]["how"], "interrupted");
    let how = |work: usize| {
        let pairs = document["works"][work]["pairs"].as_array().unwrap();
        pairs.iter().map(|pair| pair["reached"]["how"].as_str().unwrap()).collect::<BTreeSet<_>>()
    };
    assert_eq!((how(0), how(1)), (BTreeSet::from(["measured"]), BTreeSet::from(["not_run"])), "{document}");
    stand.assert_nothing_is_left();
}

/// The sums of 10,000 hosts take less than a second of one processor.
#[test]
fn ten_thousand_hosts_are_added_up_in_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let mut plan = "[mesh]\nhosts = [\n".to_owned();
    for host in 0..10_000 {
        let _ = writeln!(plan, "  {{ name = \"host-{host}\", rack = \"rack-{}\" }},", host / 40);
    }
    plan.push_str("]\npairs = \"rack\"\nboth_ways = true\n[[mesh.work]]\necho = \"udp\"\nevery = \"60s\"\n");
    let path = directory.path().join("mesh.toml");
    fs::write(&path, plan).unwrap();
    // `times` prints what the shell and then its children took, user and system.
    let script = "\"$0\" mesh check \"$1\" --json && times >&2";
    let output = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_taut")]).arg(&path).output().unwrap();
    let sums = parse(&output);
    assert_eq!((&sums["pairs"], &sums["series"]), (&550_000.into(), &550_000.into()), "{sums}");
    let told = text(&output.stderr);
    let children = told.lines().nth(1).unwrap();
    let seconds = |text: &str| text.trim_end_matches('s').split_once('m').unwrap().1.parse::<f64>().unwrap();
    let took: f64 = children.split_whitespace().map(seconds).sum();
    assert!(took < 1.0, "{took} s");
}

#[test]
fn a_plan_that_makes_no_sense_is_refused_with_what_to_write() {
    let stand = Stand::new(&["a", "b"], "patince = \"2s\"\n[[mesh.work]]\necho = \"tcp\"\n");
    let output = stand.command(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(told.contains("mesh.toml") && told.contains("line 3") && told.contains("`patience`"), "{told}");

    let hosts: Vec<String> = (0..65).map(|host| host.to_string()).collect();
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let stand = Stand::new(&names, "[[mesh.work]]\necho = \"tcp\"\n");
    let check = |more: &[&str]| {
        let plan = stand.path("mesh.toml");
        taut().args(["mesh", "check"]).arg(plan).args(more).output().unwrap()
    };
    let refused = check(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("all pairs of 65 hosts are 2080"), "{}", text(&refused.stderr));
    assert!(text(&check(&["--all"]).stdout).starts_with("65 hosts, 2,080 pairs (all), each in 64\n"));

    fs::create_dir(stand.path("full")).unwrap();
    fs::write(stand.path("full/x"), "").unwrap();
    let output = stand.command(&["--all", "--out", "full"]).output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("full is not empty"));
    // Neither the plan nor what is kept is written over.
    let plan = fs::read(stand.path("mesh.toml")).unwrap();
    for more in [&["--html", "mesh.toml"][..], &["--out", "new", "--html", "new/mesh.json"]] {
        let output = stand.command(&[&["--all"][..], more].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
    assert_eq!(fs::read(stand.path("mesh.toml")).unwrap(), plan);
    assert!(!stand.path("names").exists(), "it has begun");
    let via = taut().args(["mesh", "run", "mesh.toml", "--via", "ssh"]).output().unwrap();
    assert!(via.status.code() == Some(2) && text(&via.stderr).contains("has no {host} in it"));
}
