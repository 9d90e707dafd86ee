//! What is given away in whole systems that have nothing else: bare roots of Debian 12 and 13 by debootstrap(8), from
//! the mirror of this machine's apt, one of busybox alone, and whatever other roots (of Alpine, Ubuntu, …) lie unpacked
//! beside the first two in the user's cache, `tautline/roots/NAME`.
//!
//! There the archive has to come to a verdict within ten seconds of being unpacked, and the packages are installed,
//! used, upgraded and purged. Each works on a copy.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::packages::{self, BUSYBOX, DEBOOTSTRAP};
use crate::{apt, shell, tools};

/// From the unpacked archive to a verdict.
const BAR: Duration = Duration::from_secs(10);
/// Releases of Debian whose roots are made when they are not there.
const RELEASES: [(&str, &str); 2] = [("debian-12", "bookworm"), ("debian-13", "trixie")];
/// Runs a command in a root, in mounts of its own.
const ENTER: &str = r#"set -e
root=$1; shift
[ -c "$root/dev/null" ] || { : >"$root/dev/null"; mount --bind /dev/null "$root/dev/null"; }
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@""#;
/// What its user adds to a file of settings.
const EDIT: &str = "# Edited.\n";
/// What dpkg keeps of a package that is gone, and what every run writes.
const STATE: [&str; 5] =
    ["./var/lib/dpkg/", "./var/log/", "./var/cache/ldconfig", "./etc/ld.so.cache", "./var/lib/systemd"];

/// Tries the archive, and each of the packages, in every root.
pub(super) fn run(archive: &Path, packages: &[&Path]) -> Result<()> {
    if !shell::is_root() {
        return shell::left_out("not tried in bare roots: chroot(2) takes root");
    }
    let cache = tools::user_cache()?.join("roots");
    fs::create_dir_all(&cache)?;
    let missing = packages::ensure(&[&DEBOOTSTRAP]);
    for (name, release) in RELEASES {
        if missing.is_empty() {
            make(&cache, name, release)?;
        } else {
            shell::left_out(&format!("{name}: no bare root without debootstrap"))?;
        }
    }
    with_busybox_alone(archive)?;
    for entry in fs::read_dir(&cache)? {
        let root = entry?.path();
        if root.join("etc/os-release").exists() {
            try_in(&root, archive, packages).with_context(|| format!("in {}", root.display()))?;
        }
    }
    Ok(())
}

/// Makes a root, once.
fn make(cache: &Path, name: &str, release: &str) -> Result<()> {
    let root = cache.join(name);
    if root.is_dir() {
        return Ok(());
    }
    let mirror = apt::main_mirror()?;
    eprintln!("making a bare root of Debian ({release}), once");
    let making = tempfile::Builder::new().prefix("fetch-").tempdir_in(cache)?;
    let made = making.path().join("root");
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &format!("--keyring={}", apt::KEYRING), release]).arg(&made).arg(mirror);
    shell::output(debootstrap.stdin(Stdio::null())).with_context(|| format!("debootstrap {release}"))?;
    // Packages that were fetched are of no use any more.
    for package in fs::read_dir(made.join("var/cache/apt/archives"))?.flatten() {
        if package.path().is_file() {
            fs::remove_file(package.path())?;
        }
    }
    fs::rename(made, root)?;
    Ok(())
}

/// Tries the archive where busybox is the shell, tar and all else, as it is in Alpine, and no C library is there.
fn with_busybox_alone(archive: &Path) -> Result<()> {
    let missing = packages::ensure(&[&BUSYBOX]);
    let Some(busybox) = shell::find(BUSYBOX.command).filter(|_| missing.is_empty()) else {
        return shell::left_out("not tried with busybox alone: busybox-static is not installed");
    };
    let root = tempfile::tempdir()?;
    let place = |name: &str| root.path().join(name);
    for directory in ["bin", "dev", "proc", "sys", "tmp", "usr"] {
        fs::create_dir(place(directory))?;
    }
    symlink("/bin", place("usr/bin"))?;
    fs::copy(&busybox, place("bin/busybox"))?;
    let applets = shell::output(Command::new(&busybox).arg("--list"))?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", place("bin").join(applet))?;
    }
    let taken = verdict(root.path(), archive).context("with busybox alone")?;
    println!("busybox alone: a verdict {:.1} s after unpacking began", taken.as_secs_f64());
    Ok(())
}

fn try_in(root: &Path, archive: &Path, packages: &[&Path]) -> Result<()> {
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let work = tempfile::tempdir()?;
    let copy = work.path().join("root");
    shell::run(Command::new("cp").arg("-a").arg(root).arg(&copy))?;
    let taken = verdict(&copy, archive)?;
    println!("{name}: a verdict {:.1} s after unpacking began", taken.as_secs_f64());
    if !copy.join("usr/bin/dpkg").exists() {
        println!("{name}: it has no dpkg, so no package was tried there");
        return Ok(());
    }
    for package in packages {
        life(&copy, package)?;
        println!(
            "{name}: {} installed, used, upgraded and purged",
            package.file_name().unwrap_or_default().to_string_lossy()
        );
    }
    Ok(())
}

/// Unpacks the archive, and has the program say what holds the data of a slow one. How long both took.
fn verdict(root: &Path, archive: &Path) -> Result<Duration> {
    let home = root.join("root");
    fs::create_dir_all(&home)?;
    fs::copy(archive, home.join("taut.tar.gz"))?;
    let line = "cd /root && tar -xzf taut.tar.gz && taut-*/taut demo --explain";
    let begin = Instant::now();
    let told = shell::output(&mut inside(root, &["sh", "-c", line]))?;
    let taken = begin.elapsed();
    if !told.contains("FOUND nagle_delayed_ack") && !told.contains("nagle_delayed_ack:") {
        bail!("`taut demo --explain` did not find what it had staged:\n{told}");
    }
    if taken > BAR {
        bail!("it took {:.1} s to a verdict, and {BAR:?} are allowed", taken.as_secs_f64());
    }
    shell::run(&mut inside(root, &["sh", "-c", "rm -r /root/taut*"]))?;
    Ok(taken)
}

/// Installs, uses, upgrades and purges a package. What was edited has to survive the upgrade, and nothing may be left.
fn life(root: &Path, package: &Path) -> Result<()> {
    let field = |name: &str| -> Result<String> {
        let text = shell::output(Command::new("dpkg-deb").arg("--field").arg(package).arg(name))?;
        Ok(text.trim().to_owned())
    };
    let (name, version) = (field("Package")?, field("Version")?);
    let before = files(root)?;
    let next = format!("{version}+next");
    fs::copy(package, root.join("now.deb"))?;
    rewritten(package, &version, &next, &root.join("next.deb"))?;
    let dpkg = |words: &[&str]| shell::output(&mut inside(root, &[&["dpkg"], words].concat()));
    for (file, version) in [("/now.deb", &version), ("/next.deb", &next)] {
        dpkg(&["--install", file])?;
        let installed = shell::output(&mut inside(root, &["dpkg-query", "-W", "-f", "${Version} ${Status}", &name]))?;
        if installed.trim() != format!("{version} install ok installed") {
            bail!("{name} {version} was installed, and dpkg says: {installed}");
        }
        let is_upgrade = *version == next;
        let verified = dpkg(&["--verify", &name])?;
        // `??5?????? c /etc/…` is a file of settings, which was edited before the upgrade.
        let is_edited = |line: &&str| is_upgrade && line.split_whitespace().nth(1) == Some("c");
        let changed: Vec<&str> = verified.lines().filter(|line| !is_edited(line)).collect();
        if !changed.is_empty() {
            bail!("{name} is not what it says it installs: {changed:?}");
        }
        for file in settings(root, &name)? {
            let text = fs::read_to_string(&file)?;
            if !is_upgrade {
                fs::write(&file, text + EDIT)?;
            } else if !text.ends_with(EDIT) {
                bail!("{} was edited, and the upgrade of {name} did not keep that", file.display());
            }
        }
        used(root, &name)?;
    }
    dpkg(&["--purge", &name])?;
    fs::remove_file(root.join("now.deb"))?;
    fs::remove_file(root.join("next.deb"))?;
    let after = files(root)?;
    let left: Vec<&String> = after.symmetric_difference(&before).collect();
    if !left.is_empty() {
        bail!("{name} leaves or takes: {left:?}");
    }
    Ok(())
}

/// The files of an installed package that its user may edit.
fn settings(root: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let list = root.join(format!("var/lib/dpkg/info/{name}.conffiles"));
    if !list.exists() {
        return Ok(Vec::new());
    }
    Ok(fs::read_to_string(list)?.lines().map(|file| root.join(file.trim_start_matches('/'))).collect())
}

/// What the package is for works.
fn used(root: &Path, name: &str) -> Result<()> {
    if name != "tautline" {
        // Its library is found, by the name that programs are linked with.
        let found = shell::output(&mut inside(root, &["ldconfig", "-p"]))?;
        if !found.contains(super::deb::LIBRARY) {
            bail!("ldconfig does not know {}:\n{found}", super::deb::LIBRARY);
        }
        return Ok(());
    }
    let line = "taut serve tcp://127.0.0.1:0 --json >/tmp/served & served=$!\n\
                until grep -q tcp:// /tmp/served; do sleep 0.05; done\n\
                endpoint=$(grep -o 'tcp://[0-9.:]*' /tmp/served | head -1)\n\
                taut echo \"$endpoint\" --count 200 --place free; code=$?\n\
                kill $served; wait $served; rm /tmp/served; exit $code";
    let told = shell::output(&mut inside(root, &["timeout", "60", "sh", "-c", line]))?;
    if !told.contains("µs") {
        bail!("the installed program did not measure:\n{told}");
    }
    Ok(())
}

/// The same package as a newer version.
fn rewritten(package: &Path, version: &str, next: &str, to: &Path) -> Result<()> {
    let work = tempfile::tempdir()?;
    let tree = work.path().join("tree");
    shell::run(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&tree))?;
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    fs::write(&control, text.replacen(&format!("Version: {version}\n"), &format!("Version: {next}\n"), 1))?;
    let mut build = Command::new("dpkg-deb");
    shell::output(build.args(["--root-owner-group", "-Zgzip", "--build"]).arg(tree).arg(to)).map(drop)
}

/// All files of a root but for [`STATE`].
fn files(root: &Path) -> Result<BTreeSet<String>> {
    let mut find = Command::new("find");
    let told = shell::output(
        find.args([".", "-xdev", "(", "-name", "now.deb", "-o", "-name", "next.deb", ")"])
            .args(["-prune", "-o", "-print"])
            .current_dir(root),
    )?;
    let is_state = |path: &str| STATE.iter().any(|state| path.starts_with(state));
    Ok(told.lines().filter(|path| !is_state(path)).map(str::to_owned).collect())
}

fn inside(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "enter"]).arg(root).args(words);
    command.stdin(Stdio::null());
    command
}

/// Debian's own checks of packages: no error may be left.
pub(super) fn lintian(packages: &[PathBuf]) -> Result<()> {
    let missing = packages::ensure(&[&packages::LINTIAN]);
    if !missing.is_empty() {
        return shell::left_out("not checked by lintian: it is not installed");
    }
    let mut lintian = Command::new("lintian");
    // As another user it would not read what root has just made; both are fine.
    lintian.args(["--allow-root", "--fail-on", "error", "--tag-display-limit", "0"]).args(packages);
    let output = lintian.stdin(Stdio::null()).output().context("cannot run lintian")?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{told}");
    if !output.status.success() {
        bail!("lintian found errors:\n{told}{}", String::from_utf8_lossy(&output.stderr));
    }
    println!("lintian: {} packages without an error", packages.len());
    Ok(())
}
