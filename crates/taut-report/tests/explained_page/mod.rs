//! The page on explained captures: lanes are drawn, can be zoomed and moved, and tell what is under the pointer.

use std::fs;

use serde_json::{Value, json};
use taut_event::Holder;
use taut_explain::{
    Certainty, Cost, Direction, Evidence, Explanation, Found, Held, Picture, Span, Stall, Verdict, VerdictOn,
};
use taut_record::Ended;
use taut_report::{ExplainDocument, ExplainedFile, html};

use crate::webdriver::{Browser, skipped};

/// A name that would run if it were not escaped, wherever it stands.
const HOSTILE: &str =
    "</script><script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\">{{js}}";
const MS: u64 = 1_000_000;

fn direction(from: &str, to: &str, second: Holder) -> Direction {
    // 1 s: in the middle of it the second holder has 100 ms, and the sending program the rest.
    let span = |holder, begin, held, frames| Span { holder, begin_ns: begin * MS, held_ns: held * MS, frames };
    let spans = vec![
        span(Holder::SendingProgram, 0, 450, [1, 7]),
        span(second, 450, 100, [7, 9]),
        span(Holder::SendingProgram, 550, 450, [9, 12]),
    ];
    let held = |holder: Holder, ms: u64, frames| Held {
        holder: holder.name().to_owned(),
        side: holder.side().to_string(),
        held_ns: ms * MS,
        share: ms as f64 / 1000.0,
        episodes: 2,
        longest: vec![Stall { begin_ns: 0, held_ns: 100 * MS, frames }],
    };
    let found = Found {
        summary: format!("Something held it: {HOSTILE}"),
        side: "sender".to_owned(),
        certainty: Certainty::Seen,
        cost: Cost { held_ns: 100 * MS, between_ns: [100 * MS; 2], share: 0.1, episodes: 1 },
        evidence: vec![Evidence { text: HOSTILE.to_owned(), frames: Some([7, 9]) }],
        remedy: HOSTILE.to_owned(),
    };
    Direction {
        from: from.to_owned(),
        to: to.to_owned(),
        span_ns: 1000 * MS,
        min_rtt_ns: MS,
        breakdown: vec![held(Holder::SendingProgram, 900, [1, 7]), held(second, 100, [7, 9])],
        verdicts: vec![
            VerdictOn { cause: "nagle_delayed_ack".to_owned(), verdict: Verdict::Found(found) },
            VerdictOn {
                cause: "loss".to_owned(),
                verdict: Verdict::Unknown { missing: HOSTILE.to_owned(), ask: HOSTILE.to_owned() },
            },
        ],
        remarks: vec![HOSTILE.to_owned()],
        picture: Some(Picture { spans, left_out: 0, left_out_ns: 0 }),
        ..Direction::default()
    }
}

fn document(picture: bool) -> ExplainDocument {
    let mut worst = vec![direction(HOSTILE, "b", Holder::Nagle), direction("b", HOSTILE, Holder::ReceiveWindow)];
    if !picture {
        worst.iter_mut().for_each(|one| one.picture = None);
    }
    let file = ExplainedFile {
        file: format!("/tmp/{HOSTILE}"),
        packets: 12,
        tcp_packets: 12,
        udp_packets: 0,
        hci_packets: 0,
        air_packets: 0,
        bytes: 900,
        remarks: vec![HOSTILE.to_owned()],
        explanation: Explanation { worst, directions: 2, span_ns: 1000 * MS, flows: 1, ..Explanation::default() },
    };
    ExplainDocument {
        format_version: 1,
        command: "explain".to_owned(),
        command_line: format!("taut explain {HOSTILE}"),
        ended: Ended::Interrupted,
        files: vec![file],
        traces: Vec::new(),
        joined: Vec::new(),
        joined_traces: Vec::new(),
        difference: None,
    }
}

#[test]
fn names_from_the_wire_stay_text_and_the_page_loads_nothing() {
    let html = html::render_explained(&document(true));
    assert_eq!(html.matches("<script").count(), 3, "the data, uPlot and ours");
    assert!(!html.contains("<img") && !html.contains("src=\"http") && !html.contains("@import"));
    assert!(html.contains("frame.number in {7..9}") && html.contains("PARTIAL"));
    // The verdict stands before the breakdown.
    assert!(html.find("class=\"card\"").unwrap() < html.find("<table>").unwrap());
    let without = html::render_explained(&document(false));
    assert!(!without.contains("class=\"chart\"") && without.contains("Nagle"), "tables need no picture");
    let empty = ExplainDocument { files: Vec::new(), ..document(true) };
    assert!(html::render_explained(&empty).contains("</html>"));
}

/// How many pixels of the first chart have the colour of a holder.
const PIXELS: &str = "const probe = document.body.appendChild(document.createElement('i'));
    probe.style.color = 'var(--held-NAME)';
    const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
    probe.remove();
    const canvas = document.querySelector('.chart canvas'), { width, height } = canvas;
    const copy = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(0, 0, width, height).data;
    let count = 0;
    for (let i = 0; i < data.length; i += 4) count += wanted.every((value, k) => data[i + k] === value);
    return count;";

#[test]
fn lanes_can_be_zoomed_moved_and_asked() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => return skipped("lanes_can_be_zoomed_moved_and_asked", &why),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("explained.html");
    fs::write(&path, html::render_explained(&document(true))).unwrap();
    browser.post("/url", json!({"url": format!("file://{}", path.display())}));
    let pixels = |holder: &str| browser.run(&PIXELS.replace("NAME", holder)).as_u64().unwrap();
    // Drawn anew in the next frame.
    let until = |what: &str, holder: &str, holds: &dyn Fn(u64) -> bool| {
        for _ in 0..100 {
            if holds(pixels(holder)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{what}: {} pixels of {holder}", pixels(holder));
    };
    let (nagle, program) = (pixels("nagle"), pixels("sending_program"));
    // A tenth of one lane of two, and nine tenths of both.
    assert!(nagle > 500 && program > 12 * nagle && program < 24 * nagle, "{nagle} {program}");
    assert!(pixels("receive_window") > 500);
    assert_eq!(pixels("path_queue"), 0);

    let middle = browser.run(
        "const over = document.querySelector('.chart .u-over');
        over.scrollIntoView({ block: 'center' });
        const box = over.getBoundingClientRect();
        return [Math.round(box.left + box.width / 2), Math.round(box.top + box.height * 0.7 / 2)];",
    );
    let pointer = |actions: Value| {
        browser.post("/actions", json!({"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]}));
    };
    let at = |dx: i64| {
        let x = middle[0].as_i64().unwrap() + dx;
        json!({"type": "pointerMove", "duration": 20, "x": x, "y": middle[1], "origin": "viewport"})
    };
    pointer(json!([at(-5), at(0)]));
    let tip = browser
        .wait_for("const tip = document.querySelector('.chart .tip'); return tip.hidden ? null : tip.textContent;");
    for words in ["Nagle's algorithm", "100 ms", "frame.number in {7..9}"] {
        assert!(tip.as_str().unwrap().contains(words), "{words}: {tip}");
    }
    // The wheel zooms around the pointer.
    let wheel =
        json!({"type": "scroll", "x": middle[0], "y": middle[1], "deltaX": 0, "deltaY": -100, "origin": "viewport"});
    let turns = vec![wheel; 4];
    browser.post("/actions", json!({"actions": [{"type": "wheel", "id": "wheel", "actions": turns}]}));
    until("zoomed", "nagle", &|now| now > 2 * nagle);
    // What is dragged to the side is no longer shown.
    pointer(json!([at(0), {"type": "pointerDown", "button": 0}, at(-450), {"type": "pointerUp", "button": 0}]));
    pointer(json!([at(400), {"type": "pointerDown", "button": 0}, at(-450), {"type": "pointerUp", "button": 0}]));
    until("moved", "nagle", &|now| now == 0);
    // By the keyboard: all again, nearer, and to the left end.
    let key = |name: &str| {
        browser.run(&format!(
            "document.querySelector('.chart').dispatchEvent(new KeyboardEvent('keydown', {{ key: '{name}' }}))"
        ))
    };
    key("0");
    until("all", "nagle", &|now| now == nagle);
    (0..4).for_each(|_| drop(key("+")));
    until("nearer", "nagle", &|now| now > 2 * nagle);
    (0..9).for_each(|_| drop(key("ArrowLeft")));
    until("left", "nagle", &|now| now == 0);
    until("left", "sending_program", &|now| now > program);

    assert_eq!(browser.run("return document.title"), "taut explain");
    assert_eq!(browser.run("return performance.getEntriesByType('resource').length"), 0);
    let wide = "const { scrollWidth, clientWidth } = document.documentElement; return scrollWidth <= clientWidth";
    assert_eq!(browser.run(wide), true);
    assert_eq!(browser.log(), Vec::<Value>::new());
    super::screenshot(&browser, "taut-explained.png");
}
