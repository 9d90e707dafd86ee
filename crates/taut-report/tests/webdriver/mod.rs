//! A headless Chromium, spoken to through chromedriver (WebDriver over HTTP).

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest time that a page or a script may take: of a page that comes over a simulated radio to a busy host, long.
const PATIENCE_SECS: u64 = 150;

/// One browser with one page. It ends with its last owner.
pub(crate) struct Browser {
    driver: Child,
    agent: ureq::Agent,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser; says why not when there is none.
    pub(crate) fn start() -> Result<Self, String> {
        for program in ["chromedriver", "chromium"] {
            let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            found.map_err(|error| format!("cannot run {program}: {error}"))?;
        }
        // Port 0: chromedriver takes a free one and prints it.
        let mut driver = Command::new("chromedriver")
            .args(["--port=0", "--log-level=SEVERE"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start chromedriver: {error}"))?;
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let port = port.expect("chromedriver prints its port");
        let profile = tempfile::tempdir().unwrap();
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(PATIENCE_SECS + 30)))
            .http_status_as_error(false)
            .build()
            .new_agent();
        let mut browser =
            Self { driver, agent, session: format!("http://127.0.0.1:{port}/session"), _profile: profile };
        let data = format!("--user-data-dir={}", browser._profile.path().display());
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1200,900",
            &data,
        ];
        let patience = PATIENCE_SECS * 1000;
        let wanted = json!({"goog:chromeOptions": {"args": args}, "goog:loggingPrefs": {"browser": "ALL"},
                            "timeouts": {"script": patience, "pageLoad": patience}});
        let session = browser.post("", json!({"capabilities": {"alwaysMatch": wanted}}));
        let id = session["sessionId"].as_str().expect("a session has an id").to_owned();
        browser.session = format!("{}/{id}", browser.session);
        Ok(browser)
    }

    /// Sends a command and gives its value.
    pub(crate) fn post(&self, path: &str, body: Value) -> Value {
        let mut answer = self.agent.post(format!("{}{path}", self.session)).send_json(body).unwrap();
        let answer: Value = answer.body_mut().read_json().unwrap();
        let value = answer["value"].clone();
        assert!(value.get("error").is_none(), "{path}: {value}");
        value
    }

    /// Runs a script in the page and gives what it returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []}))
    }

    /// Runs a script until it returns something true, and gives that.
    pub(crate) fn wait_for(&self, script: &str) -> Value {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let value = self.run(script);
            if !value.is_null() && value != Value::Bool(false) {
                return value;
            }
            assert!(Instant::now() < end, "nothing came of: {script}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a command of the Chrome DevTools Protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": command, "params": parameters}))
    }

    /// What the page logged, of any level.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.post("/se/log", json!({"type": "browser"})).as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; then the driver, which is our own child.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Records that a test could not run: a skipped test is not a passed one.
pub(crate) fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED: {test}: {why}");
    eprintln!("{line}");
    if let Some(log) = std::env::var_os("TAUT_SKIP_LOG") {
        let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{line}").unwrap();
    }
}
