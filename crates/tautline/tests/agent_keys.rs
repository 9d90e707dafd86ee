//! Agents with keys of NATS: a server that knows users by their nkeys, and one that knows them by an account's JWTs.

mod agent_support;
mod support;

use std::fs;
use std::path::Path;

use agent_support::Fleet;
use nkeys::{KeyPair, Of, seed};
use serde_json::{Value, json};
use support::{parse, text};

const PLAN: &str = "hosts = [\"h1\", \"h2\"]\n[[mesh.work]]\necho = \"udp\"\nmessages = 20\n";

fn pair(of: Of, number: u8) -> (String, KeyPair) {
    let seed = seed(of, &[number; 32]);
    let pair = KeyPair::from_seed(&seed).unwrap();
    (seed, pair)
}

/// Base64 for addresses, without padding (RFC 4648, section 5).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = [0, 1, 2].iter().fold(0_u32, |bits, &at| bits << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        let letters = three.len() + 1;
        text.extend((0..letters).map(|at| char::from(LETTERS[(bits >> (18 - 6 * at)) as usize & 63])));
    }
    text
}

/// What one key says of another, as NATS has it.
fn jwt(by: &KeyPair, of: &KeyPair, name: &str, mut says: Value) -> String {
    says["version"] = 2.into();
    let claims =
        json!({ "jti": name, "iat": 1, "iss": by.public_key(), "name": name, "sub": of.public_key(), "nats": says });
    let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let signed = [head, claims].map(|part| base64(part.to_string().as_bytes())).join(".");
    let signature = base64(&by.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

/// Starts the server with these lines; `false`, and the test counted as skipped, where there is none.
fn serve(fleet: &mut Fleet, lines: &str) -> bool {
    let path = fleet.path("nats.conf");
    fs::write(&path, lines).unwrap();
    fleet.options = vec!["-c".to_owned(), path.display().to_string()];
    fleet.serve()
}

/// Agents with the right file measure, and one with the wrong file is kept out and says so. Secrets are in nothing that
/// is said or kept.
fn measured(fleet: &mut Fleet, query: &str, [right, wrong]: [&Path; 2], secrets: &[&str]) {
    fleet.plan(PLAN);
    fleet.query = format!("?{query}={}", wrong.display());
    let on = fleet.on();
    fleet.start("w1", ["agent", "--on", &on, "--name", "w1"].map(str::to_owned).to_vec());
    fleet.hear("w1", "authorization violation");
    fleet.query = format!("?{query}={}", right.display());
    fleet.agent("h1", 1, &[]);
    fleet.agent("h2", 2, &[]);
    let output = fleet.run(&["--out", "measured"]);
    assert_eq!(output.status.code(), Some(0), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(parse(&output)["results"]["taken"], 1);
    let kept = ["mesh.json", "results.jsonl"].map(|name| fs::read(fleet.path("measured").join(name)).unwrap());
    let said = ["w1", "h1", "h2"].map(|name| fleet.told(name).into_bytes());
    for bytes in [output.stdout, output.stderr].iter().chain(&kept).chain(&said) {
        assert!(!bytes.is_empty() && !secrets.iter().any(|secret| text(bytes).contains(secret)), "{}", text(bytes));
    }
}

#[test]
fn by_their_nkeys() {
    let mut fleet = Fleet::new("by_their_nkeys");
    let ((right, user), (wrong, _)) = (pair(Of::User, 1), pair(Of::User, 2));
    let lines = format!("authorization {{ users: [ {{ nkey: {} }} ] }}\n", user.public_key());
    if !serve(&mut fleet, &lines) {
        return;
    }
    let paths = [("right.nk", &right), ("wrong.nk", &wrong)].map(|(name, seed)| {
        let path = fleet.path(name);
        fs::write(&path, format!("{seed}\n")).unwrap();
        path
    });
    measured(&mut fleet, "nkey", [&paths[0], &paths[1]], &[&right, &wrong]);
}

#[test]
fn by_their_credentials() {
    let mut fleet = Fleet::new("by_their_credentials");
    let [operator, system, account, stranger] =
        [(Of::Operator, 3), (Of::Account, 4), (Of::Account, 5), (Of::Account, 6)]
            .map(|(of, number)| pair(of, number).1);
    let (seed, user) = pair(Of::User, 7);
    let unlimited = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1, "leaf": -1,
        "wildcards": true, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1 });
    let of_account =
        |pair: &KeyPair, name| jwt(&operator, pair, name, json!({ "type": "account", "limits": unlimited }));
    let system_limits = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1,
        "leaf": -1, "wildcards": true });
    let of_system = jwt(&operator, &system, "sys", json!({ "type": "account", "limits": system_limits }));
    let lines = format!(
        "operator: {}\nsystem_account: {sys}\nresolver: MEMORY\nresolver_preload: {{ {sys}: {of_system}, {}: {} }}\n",
        jwt(&operator, &operator, "op", json!({ "type": "operator" })),
        account.public_key(),
        of_account(&account, "taut"),
        sys = system.public_key(),
    );
    if !serve(&mut fleet, &lines) {
        return;
    }
    let of_user = json!({ "type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1 });
    // An account that no operator knows could say the same.
    let paths = [("right.creds", &account), ("wrong.creds", &stranger)].map(|(name, account)| {
        let path = fleet.path(name);
        let jwt = jwt(account, &user, "agent", of_user.clone());
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(&path, text).unwrap();
        path
    });
    measured(&mut fleet, "creds", [&paths[0], &paths[1]], &[&seed]);
}
