//! Pages over Bluetooth LE between two adapters of stock kernels: `taut web` behind the one; at the
//! other a client of its own links, and one that knows TCP only, with `taut pipe` before it.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{Lab, cargo, note_skipped};

/// The pair's own server has PSM 129; the pages' is 225, as in the published experiment.
const SERVE: &str = "
: @peer
taut web /root/site --on 'l2cap://any/225?adapter=hci1' --json >$OUT/web.json 2>$OUT/web.log &
web=$!
sleep 2
";
const FETCH: &str = "
fetch() { /bin/fetch 'l2cap://00:AA:01:01:00:00/225?adapter=hci0' /$1; }
";
const PIPE: &str = "
taut pipe listen:tcp://127.0.0.1:8080 'l2cap://00:AA:01:01:00:00/225?adapter=hci0' 2>$OUT/pipe.log &
sleep 2
fetch() { timeout 60 wget -q -O - http://127.0.0.1:8080/$1; }
";
const ASK: &str = "
fetch index.html >$OUT/index.html && fetch data.bin >$OUT/data.bin || exit 1
fetch .hidden && exit 2
kill -INT $web
wait $web
";

/// Builds the example that speaks HTTP over links.
fn fetch() -> PathBuf {
    let mut build = cargo();
    let status = build.args(["build", "--quiet", "--locked", "--workspace", "--example", "fetch"]).status().unwrap();
    assert!(status.success(), "the example `fetch` does not build");
    Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("examples").join("fetch")
}

fn a_page_comes_byte_by_byte(test: &str, kernel: &str, client: &str) {
    let Some(lab) = Lab::ready(test) else { return };
    let site = lab.path("site");
    fs::create_dir(&site).unwrap();
    // No multiple of an SDU, and longer than what the sockets on the way hold.
    let data: Vec<u8> = (0..100_001_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let page = b"<!DOCTYPE html><h1>Hello from BLE HTTP!</h1>";
    for (name, contents) in [("data.bin", data.as_slice()), ("index.html", page), (".hidden", b"hidden")] {
        fs::write(site.join(name), contents).unwrap();
    }
    let mut command = lab.command(&["pair", "--kernel", kernel, "--icount", "--ci", "15ms", "--out"]);
    command.arg(lab.path("out")).arg("--file").arg(format!("{}:/root/site", site.display()));
    command.arg("--file").arg(format!("{}:/bin/fetch", fetch().display()));
    let output = command.args(["--", "sh", "-c", &[SERVE, client, ASK].concat()]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let told = |name: &str| fs::read_to_string(lab.path("out").join(name)).unwrap_or_default();
    assert!(output.status.success(), "{stderr}\n{}\n{}", told("web.log"), told("pipe.log"));
    assert!(fs::read(lab.path("out/data.bin")).unwrap() == data, "{}", told("web.log"));
    assert_eq!(fs::read(lab.path("out/index.html")).unwrap(), page);
    assert!(told("web.log").contains("\"GET /data.bin\" 200 100001 B "), "{}", told("web.log"));
    assert!(told("web.json").contains("\"404\":1"), "{}", told("web.json"));
}

#[test]
fn a_page_comes_over_l2cap_on_linux_5_10() {
    a_page_comes_byte_by_byte("a_page_comes_over_l2cap_on_linux_5_10", "5.10", FETCH);
}

#[test]
fn a_page_comes_over_l2cap_on_linux_6_12() {
    a_page_comes_byte_by_byte("a_page_comes_over_l2cap_on_linux_6_12", "6.12", FETCH);
}

#[test]
fn a_page_comes_over_l2cap_through_a_pipe() {
    let test = "a_page_comes_over_l2cap_through_a_pipe";
    // Said by its sources, as the guest's program is not built yet.
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/taut-pipe").exists() {
        return note_skipped(test, "this taut has no pipe");
    }
    a_page_comes_byte_by_byte(test, "6.12", PIPE);
}
