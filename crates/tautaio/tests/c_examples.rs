//! The C examples: built against the system's `<aio.h>`, run with the C library's implementation and with ours.

mod support;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use support::aio::PATIENCE;
use support::{Library, descriptors, has, library, root, skip};

/// Silent connections that a server must be able to have beside those that talk.
const CONNECTIONS: usize = 1000;

/// How the library gets into the program.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Way {
    Linked,
    Preloaded,
    /// Built for 64-bit offsets by name, which makes it call `aio_read64` and so on.
    PreloadedLarge,
}

/// Compiles an example. None, and said loudly, without a compiler.
fn compile(test: &str, source: &str, way: Way) -> Option<Program> {
    if !has("cc") {
        skip(test, "there is no C compiler (cc)");
        return None;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("program");
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(root().join("include"));
    command.arg("-o").arg(&path).arg(root().join("examples/aio").join(source));
    if way == Way::PreloadedLarge {
        command.arg("-D_FILE_OFFSET_BITS=64");
    }
    if way == Way::Linked {
        let place = library();
        let place = place.parent().unwrap();
        command.arg("-L").arg(place).arg("-ltautaio").arg(format!("-Wl,-rpath,{}", place.display()));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(Program { path, _directory: directory })
}

struct Program {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

/// A server that runs; ended when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(program: &Path, arguments: &[&str], library: Library, way: Way) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        library.preload(&mut command);
        if way == Way::Linked {
            command.env_remove("LD_PRELOAD");
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("`{line}` is no port"));
        Self { child, port }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Ends it; gives what it said on stderr.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a message and says whether it comes back in that time.
fn echoes(stream: &TcpStream, message: &[u8], within: Duration) -> bool {
    (&mut &*stream).write_all(message).unwrap();
    comes_back(stream, message, within)
}

fn comes_back(mut stream: &TcpStream, message: &[u8], within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut answer = vec![0; message.len()];
    match stream.read_exact(&mut answer) {
        Ok(()) => {
            assert_eq!(answer, message);
            true
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
            false
        }
    }
}

#[test]
fn the_c_library_starves_the_21st_connection() {
    let test = concat!(module_path!(), "::the_c_library_starves_the_21st_connection");
    let Some(program) = compile(test, "echo.c", Way::Preloaded) else { return };
    for arguments in [&[][..], &["--suspend"]] {
        let server = Server::start(&program.path, arguments, Library::System, Way::Preloaded);
        let served: Vec<_> = (0..20).map(|_| server.connect()).collect();
        for _ in 0..2 {
            assert!(served.iter().all(|stream| echoes(stream, b"served", PATIENCE)));
        }
        // All of the pool's threads wait for one of those 20, once the server has asked for each one's next message,
        // which it does after it has answered.
        thread::sleep(Duration::from_millis(500));
        let starved = server.connect();
        assert!(!echoes(&starved, b"starved", Duration::from_secs(1)), "the 21st connection was served");
        // Once one of them speaks, its thread takes the request that waits longest.
        assert!(echoes(&served[0], b"x", PATIENCE));
        assert!(comes_back(&starved, b"starved", PATIENCE));
        server.end();
    }
}

/// With the library many connections are served, in any order, whoever stays silent.
fn check(test: &str, source: &str, arguments: &[&str], library: Library, way: Way) {
    if let Some(reason) = library.refused() {
        return skip(test, &reason);
    }
    let Some(program) = compile(test, source, way) else { return };
    let connections = CONNECTIONS.min(descriptors::raise_limit() - 100);
    let server = Server::start(&program.path, arguments, library, way);
    let streams: Vec<_> = (0..connections).map(|_| server.connect()).collect();
    for (number, stream) in streams.iter().enumerate().rev() {
        assert!(echoes(stream, format!("this is {number}").as_bytes(), PATIENCE), "{number} of {connections}");
    }
    // All at once, and more than a buffer holds.
    let message: Vec<u8> = (0u8..=255).cycle().take(20_000).collect();
    for stream in &streams[..20] {
        (&mut &*stream).write_all(&message).unwrap();
    }
    assert!(streams[..20].iter().all(|stream| comes_back(stream, &message, PATIENCE)));
    // A connection that ends is ended by the other side too.
    let ended = server.connect();
    ended.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!((&ended).read(&mut [0]).unwrap(), 0);
    drop(streams);
    assert!(echoes(&server.connect(), b"still there", PATIENCE));

    let said = server.end();
    let engine = if library == Library::Uring { "io_uring" } else { "epoll" };
    assert!(said.starts_with(&format!("tautaio: engine {engine}")), "`{said}`");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Makes a test for each engine.
macro_rules! serves {
    ($($name:ident: $source:literal $arguments:tt $way:ident;)+) => { $(
        mod $name {
            use super::*;

            #[test]
            fn uring() {
                check(concat!(module_path!(), "::uring"), $source, &$arguments, Library::Uring, Way::$way);
            }

            #[test]
            fn epoll() {
                check(concat!(module_path!(), "::epoll"), $source, &$arguments, Library::Epoll, Way::$way);
            }
        }
    )+ };
}

serves! {
    echo_linked: "echo.c" [] Linked;
    echo_preloaded: "echo.c" [] Preloaded;
    echo_preloaded_with_large_names: "echo.c" [] PreloadedLarge;
    echo_suspend_linked: "echo.c" ["--suspend"] Linked;
    echo_suspend_preloaded: "echo.c" ["--suspend"] Preloaded;
    echo_waitcomplete_linked: "echo_waitcomplete.c" [] Linked;
}

#[test]
fn the_header_is_cpp_as_well() {
    let test = concat!(module_path!(), "::the_header_is_cpp_as_well");
    if !has("c++") {
        return skip(test, "there is no C++ compiler (c++)");
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("uses.cc");
    let text = "#include <tautaio.h>\n#include <tautaio.h>\nint main() { return tautaio_completion_fd() < 0 || \
                aio_waitcomplete(nullptr, nullptr) != 0; }\n";
    std::fs::write(&source, text).unwrap();
    let place = library();
    let output = Command::new("c++")
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg("-o")
        .arg(directory.path().join("uses"))
        .arg(&source)
        .arg("-L")
        .arg(place.parent().unwrap())
        .arg("-ltautaio")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
