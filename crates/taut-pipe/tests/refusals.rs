//! Errors say which side refused.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use support::tls::Certificates;
use support::{Running, port};
use taut_pipe::{EndedBy, Options, TlsFiles};

fn provided() -> Certificates {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Certificates::new()
}

fn connect(running: &Running, end: usize) -> TcpStream {
    let socket = TcpStream::connect(port(&running.endpoints[end])).unwrap();
    socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
    socket
}

#[test]
fn we_refuse_a_server_whose_root_we_do_not_trust_and_it_is_told() {
    let certificates = provided();
    // Another root than that of the server.
    let other = Certificates::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tls://localhost:{}", listener.local_addr().unwrap().port());
    let tls = TlsFiles { ca: Some(other.file("root.pem")), ..TlsFiles::default() };
    let running = Running::start("exec:cat", &to, Options { tls, ..Options::default() });
    let mut server = certificates.accept(listener.accept().unwrap().0);
    let told = server.conn.complete_io(&mut server.sock).unwrap_err().to_string();
    assert!(told.contains("alert"), "{told}");
    let summary = running.next();
    assert!(summary.failed && summary.ended_by == EndedBy::B, "{summary:?}");
    assert!(
        summary.why.contains("we refused the server's certificate") && summary.why.contains("--ca"),
        "{}",
        summary.why
    );
}

#[test]
fn a_server_that_refuses_us_is_named_as_the_one() {
    let certificates = provided();
    // It asks for a certificate, and we have none.
    let strict = Options { tls: certificates.files("server", true), ..Options::default() };
    let server = Running::start("listen:tls://127.0.0.1:0", "exec:cat", strict);
    let to = format!("tls://localhost:{}", port(&server.endpoints[0]).rsplit(':').next().unwrap());
    let tls = TlsFiles { ca: Some(certificates.file("root.pem")), ..TlsFiles::default() };
    let client = Running::start("exec:cat", &to, Options { tls, ..Options::default() });
    let (ours, theirs) = (client.next().why, server.next().why);
    assert!(ours.contains("the server refused") && ours.contains("certificate required"), "{ours}");
    assert!(theirs.contains("we refused the client: it has no certificate"), "{theirs}");
}

#[test]
fn the_end_whose_client_does_not_speak_tls_is_the_one_that_is_named() {
    let certificates = provided();
    let options = Options { tls: certificates.files("server", false), ..Options::default() };
    let running = Running::start("listen:tcp://127.0.0.1:0", "listen:tls://127.0.0.1:0", options);
    // The first end is there, and has done nothing wrong.
    let _near = connect(&running, 0);
    let mut far = connect(&running, 1);
    far.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = far.read(&mut [0; 64]);
    let summary = running.next();
    assert_eq!(summary.ended_by, EndedBy::B, "{summary:?}");
    assert!(
        summary.why.contains("listen:tls:") && summary.why.contains("we refused the client: what it sends is no TLS"),
        "{}",
        summary.why
    );
}

#[test]
fn a_client_that_leaves_before_tls_has_begun_is_said_to_have_closed() {
    let certificates = provided();
    let options = Options { tls: certificates.files("server", false), ..Options::default() };
    let running = Running::start("listen:tls://127.0.0.1:0", "exec:cat", options);
    drop(connect(&running, 0));
    let summary = running.next();
    assert!(summary.why.contains("the client closed before TLS had begun"), "{}", summary.why);
}

#[test]
fn a_host_where_nobody_listens_is_said_to_have_answered() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let running = Running::start("exec:cat", &format!("tcp://{nobody}"), Options::default());
    let summary = running.next();
    assert!(summary.why.contains("that host answered that nobody listens on the port"), "{}", summary.why);
}

#[test]
fn roots_are_those_of_the_platform() {
    const MADE: &str = "TAUT_TEST_CERTIFICATES";
    let Some(made) = std::env::var_os(MADE) else {
        let certificates = provided();
        let root = certificates.file("root.pem");
        // A process of its own, as they are said by its environment.
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "roots_are_those_of_the_platform"]).env(MADE, root.parent().unwrap());
        assert!(command.env("SSL_CERT_FILE", &root).env_remove("SSL_CERT_DIR").status().unwrap().success());
        return;
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = Certificates::of(made.into());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tls://localhost:{}", listener.local_addr().unwrap().port());
    // What the program says goes to the server, once it is trusted.
    let _running = Running::start("exec:echo trusted", &to, Options::default());
    let mut server = certificates.accept(listener.accept().unwrap().0);
    assert_eq!(support::read_exact(&mut server, 8), b"trusted\n");
}
