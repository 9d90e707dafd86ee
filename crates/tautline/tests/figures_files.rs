//! Files to which figures may not go.

mod support;

use support::{taut, text};

/// Appended lines would spoil what is read or written besides, whatever it is called.
#[test]
fn lines_go_into_no_file_that_is_used_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let route = "[[route]]\nname = \"r\"\nfrom = \"timer:1s\"\nto = [\"file:sink\"]\nlog = \"log\"\n";
    let pipe = "[[pipe]]\na = \"exec:true\"\nb = \"exec:true\"\n";
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("r.toml", route);
    write("p.toml", pipe);
    write("input", "1\n");
    std::os::unix::fs::symlink("log", directory.path().join("link")).unwrap();
    let beat = "--every 1s --jsonl";
    for line in [
        format!("route run r.toml {beat} r.toml"),
        format!("route run r.toml {beat} ./r.toml"),
        format!("route run r.toml {beat} log"),
        format!("route run r.toml {beat} link"),
        format!("route run r.toml {beat} ./sink"),
        format!("route run --from lines:input --to file:/dev/null {beat} ./input"),
        format!("pipe --config p.toml {beat} ./p.toml"),
        "pipe --config p.toml --tee p.toml".to_owned(),
        format!("pipe exec:true exec:true {beat} same --tee ./same"),
        format!("pipe file:input exec:cat {beat} ./input"),
        "pipe exec:true file:same --tee ./same".to_owned(),
    ] {
        let output = taut().current_dir(&directory).args(line.split(' ')).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(error.contains("would write over it") || error.contains("name the same file"), "{line}: {error}");
        assert!(!["log", "sink", "same"].iter().any(|name| directory.path().join(name).exists()), "{line}");
    }
    let kept = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!([kept("r.toml"), kept("p.toml"), kept("input")], [route, pipe, "1\n"]);
    write("r.toml", &route.replace("\"log\"", "\"r.toml\""));
    let output = taut().current_dir(&directory).args(["route", "run", "r.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the log of route r would write over it"), "{}", text(&output.stderr));
}
