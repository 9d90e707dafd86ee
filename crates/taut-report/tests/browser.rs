//! The HTML report in a real browser.

mod explained_page;
mod synthetic;
mod webdriver;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use taut_report::{Document, html};
use webdriver::{Browser, skipped};

/// Size of each chart's canvas, and how many of its pixels are painted.
const CANVASES: &str = "return [...document.querySelectorAll('.chart')].map((host) => {
    const canvas = host.querySelector('canvas');
    if (!canvas) return {};
    const { width, height } = canvas, shown = canvas.getBoundingClientRect();
    const copy = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const pixels = copy.getImageData(0, 0, width, height).data;
    let painted = 0;
    for (let i = 3; i < pixels.length; i += 4) painted += pixels[i] > 0;
    return { width: shown.width, height: shown.height, painted };
});";

/// Middle of the plotting area of a chart, in the viewport.
const MIDDLE_OF: &str = "const over = document.querySelectorAll('.chart')[CHART].querySelector('.u-over');
    over.scrollIntoView({ block: 'center' });
    const box = over.getBoundingClientRect();
    return [Math.round(box.left + box.width / 2), Math.round(box.top + box.height / 2)];";

#[test]
fn the_report_works_in_a_browser() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => return skipped("the_report_works_in_a_browser", &why),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.html");
    fs::write(&path, html::render(&synthetic::survey())).unwrap();
    browser.post("/url", json!({"url": format!("file://{}", path.display())}));

    every_chart_is_painted(&browser);
    hovering_shows_figures(&browser);
    screenshot(&browser, "taut-report-light.png");

    let background = "return getComputedStyle(document.body).backgroundColor";
    let light = browser.run(background);
    dark(&browser);
    assert_ne!(browser.run(background), light);
    every_chart_is_painted(&browser);
    screenshot(&browser, "taut-report-dark.png");

    the_button_overrules_the_system(&browser, &light);
    a_narrow_window_does_not_scroll_sideways(&browser);
    assert_eq!(browser.log(), Vec::<Value>::new());
}

#[test]
fn without_scripts_the_tables_remain() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => return skipped("without_scripts_the_tables_remain", &why),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.html");
    fs::write(&path, html::render(&synthetic::survey())).unwrap();
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.post("/url", json!({"url": format!("file://{}", path.display())}));
    let shown = |selector: &str| {
        let found = browser.post("/elements", json!({"using": "css selector", "value": selector}));
        found.as_array().map_or(0, Vec::len)
    };
    assert_eq!(shown("canvas"), 0);
    assert_eq!(shown("main .scroll table"), 18);
    assert_eq!(shown("noscript p"), 1);
    assert_eq!(shown("button[hidden]"), 1);
}

fn every_chart_is_painted(browser: &Browser) {
    let canvases = browser.run(CANVASES);
    let canvases = canvases.as_array().unwrap();
    assert_eq!(
        canvases.len(),
        15,
        "percentiles, exceedance, two spreads, two timelines, two curves of crowds, settings, intervals, connection events; \
         percentiles and exceedance of routes' edges and of turns"
    );
    for canvas in canvases {
        let figure = |key: &str| canvas[key].as_f64().unwrap_or(0.0);
        assert!(figure("width") > 200.0 && figure("height") > 50.0, "{canvas}");
        assert!(figure("painted") > 500.0, "{canvas}");
    }
}

fn hovering_shows_figures(browser: &Browser) {
    hover(browser, 0);
    let legend = browser.wait_for(
        "const values = [...document.querySelectorAll('.chart')[0].querySelectorAll('.u-value')].map((v) => v.textContent);
        return values[0] === '–' ? null : values;",
    );
    let figures: Vec<&str> = legend.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(figures.len(), 5);
    assert!(figures[0].ends_with('%'), "{figures:?}");
    assert!(figures[1..].iter().all(|figure| figure.ends_with("µs") || figure.ends_with("ms")), "{figures:?}");

    for (chart, words) in [(2, "p50 "), (3, "socket"), (5, "Gbit/s"), (12, "ratio "), (14, "no credit")] {
        hover(browser, chart);
        let tip = browser.wait_for(&format!(
            "const tip = document.querySelectorAll('.chart')[{chart}].querySelector('.tip');
            return tip.hidden ? null : tip.textContent;"
        ));
        assert!(tip.as_str().unwrap().contains(words), "{chart}: {tip}");
    }
}

fn hover(browser: &Browser, chart: usize) {
    let middle = browser.run(&MIDDLE_OF.replace("CHART", &chart.to_string()));
    let steps = [-5, 0].map(|off| {
        let x = middle[0].as_i64().unwrap() + off;
        json!({"type": "pointerMove", "duration": 50, "x": x, "y": middle[1], "origin": "viewport"})
    });
    browser.post("/actions", json!({"actions": [{"type": "pointer", "id": "mouse", "actions": steps}]}));
}

fn dark(browser: &Browser) {
    let features = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
    browser.devtools("Emulation.setEmulatedMedia", json!({"features": features}));
}

fn the_button_overrules_the_system(browser: &Browser, light: &Value) {
    browser.run("document.getElementById('theme').click()");
    assert_eq!(&browser.run("return getComputedStyle(document.body).backgroundColor"), light);
    every_chart_is_painted(browser);
}

fn a_narrow_window_does_not_scroll_sideways(browser: &Browser) {
    let phone = json!({"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": false});
    browser.devtools("Emulation.setDeviceMetricsOverride", phone);
    // Charts follow the window through an observer, which runs after the layout.
    browser
        .wait_for("const { scrollWidth, clientWidth } = document.documentElement; return scrollWidth === clientWidth");
    every_chart_is_painted(browser);
    screenshot(browser, "taut-report-phone.png");
}

/// Kept for people to look at.
fn screenshot(browser: &Browser, name: &str) -> PathBuf {
    browser.run("scrollTo(0, 0)");
    let picture = browser.devtools("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
    let path = std::env::temp_dir().join(name);
    fs::write(&path, base64(picture["data"].as_str().unwrap())).unwrap();
    path
}

fn base64(text: &str) -> Vec<u8> {
    let sextet = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = four.iter().fold(0u32, |bits, &byte| bits << 6 | u32::from(sextet(byte))) << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}
