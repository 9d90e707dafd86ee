//! Whatever bytes a client sends, the server of pages neither fails nor gives out what lies outside
//! of its directory, and each of its answers begins as one.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{fs, os};

use libfuzzer_sys::fuzz_target;
use taut_web::{Limits, Options, Site, Tree, serve_stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

/// In no file that is served, and in every other one.
const SECRET: &[u8] = b"MUST-NOT-BE-SEEN";

static SITE: LazyLock<Arc<Site>> = LazyLock::new(|| {
    let outer = std::env::temp_dir().join(format!("taut-fuzz-web-{}", std::process::id()));
    let site = outer.join("site");
    fs::create_dir_all(site.join("sub/.git")).unwrap();
    for name in ["secret", "site/.hidden", "site/sub/.git/config"] {
        fs::write(outer.join(name), SECRET).unwrap();
    }
    for name in ["index.html", "a.css", "a.css.gz", "a.css.br", "page.tmpl.html", "sub/x"] {
        fs::write(site.join(name), "shown {{time}}").unwrap();
    }
    let _ = os::unix::fs::symlink("../secret", site.join("up"));
    let _ = os::unix::fs::symlink(outer.join("secret"), site.join("out"));
    let _ = os::unix::fs::symlink("..", site.join("sub/parent"));
    let options = Options { listing: true, ..Options::default() };
    Arc::new(Site::new(Tree::open(&site).unwrap(), options))
});

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());

fuzz_target!(|request: &[u8]| {
    let limits =
        Limits { head_time: Duration::from_millis(200), stall: Duration::from_millis(200), ..Limits::default() };
    let answers = RUNTIME.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let serving = serve_stream(server, Arc::clone(&SITE), Arc::new(limits));
        let asking = async {
            client.write_all(request).await.ok();
            client.shutdown().await.ok();
            let mut answers = Vec::new();
            client.read_to_end(&mut answers).await.ok();
            answers
        };
        let (_, answers) = tokio::join!(serving, asking);
        answers
    });
    assert!(!answers.windows(SECRET.len()).any(|window| window == SECRET));
    assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."));
});
