//! Crowds on Linux 5.10, which has neither `epoll_pwait2` nor the newer flags of io_uring.

mod support;

use std::fs;

use serde_json::Value;
use support::Lab;

const ENGINES: [&str; 8] =
    ["poll", "epoll", "tokio", "uring", "aio-signal", "aio-suspend", "aio-wait", "glibc-aio-threads"];

#[test]
fn every_engine_answers_a_crowd_on_linux_5_10() {
    let Some(lab) = Lab::ready("every_engine_answers_a_crowd_on_linux_5_10") else { return };
    let script = "taut connections --connections 50 --active 7 --engines $0 --rounds 1 --time 20ms --json >$OUT/crowd";
    let mut command = lab.command(&["run", "--kernel", "5.10", "--icount", "--out"]);
    let output = command.arg(lab.path("out")).args(["--", "sh", "-c", script, &ENGINES.join(",")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let crowd: Value = serde_json::from_str(&fs::read_to_string(lab.path("out/crowd")).unwrap()).unwrap();
    let rows = crowd["results"].as_array().unwrap();
    assert_eq!(rows.len(), ENGINES.len());
    for row in rows {
        let why_not = row["why_not"].as_str().unwrap_or_default();
        if row["engine"] == "uring" {
            assert!(why_not.contains("it needs Linux 6.1"), "{row}");
            continue;
        }
        assert_eq!(why_not, "", "{row}");
        assert_eq!((&row["lost"], &row["starved"]), (&0.into(), &Value::Null), "{row}");
        let sent = row["sent"].as_u64().unwrap();
        assert!(sent >= 3 * row["active"].as_u64().unwrap() && row["rtt_ns"]["count"] == sent, "{row}");
    }
}
