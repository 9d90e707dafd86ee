//! DKMS, tried for real: the Debian package of the module's sources is installed, installed again and purged, with the
//! dkms of a kernel's Debian release, in that kernel's workshop. A layer over the workshop takes what is written and is
//! gone afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::kernel::{Kernel, Series};
use super::workshop::{Workshop, is_complaint};
use crate::apt::Apt;
use crate::dist::{self, deb};
use crate::{shell, tools};

/// What dkms calls beside what a workshop has. dkms itself is taken alone: it depends on a compiler of Debian's choice.
const TOOLS: [&str; 3] = ["kmod", "lsb-release", "patch"];
/// Entered with the workshop's root, the layer's files, the directory with the package and one for mounts; these are
/// gone with the process. This system's dpkg installs there, and runs the package's scripts in that root.
const ENTER: &str = r#"set -e
root=$1 files=$2 bench=$3 mounts=$4 release=$5
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive
# It is a place of this system.
unset TMPDIR
mount -t tmpfs tmpfs "$mounts"
mkdir "$mounts/upper" "$mounts/work" "$mounts/root"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$mounts/upper,workdir=$mounts/work" "$mounts/root"
cd "$mounts/root"
tar -C "$files" -cf - . | tar --keep-directory-symlink -xf -
mkdir -p proc var/lib/dpkg/info var/lib/dpkg/updates var/lib/dpkg/triggers
: >var/lib/dpkg/status
mount --rbind /proc proc
mount --bind /dev/null dev/null
mount --bind "$bench" bench
ln -s /proc/self/fd dev/fd
inside() { chroot . /bin/bash -ec "$1" dkms "$release"; }
# dkms is unpacked there, not installed.
package() { dpkg --root="$PWD" --log=/dev/null --force-depends --force-not-root --force-bad-path "$@"; }
# A kernel's package does this. dkms takes a list of no module for that of a kernel that is not installed.
inside 'install -D -t "/lib/modules/$1/kernel" /bench/dummy.ko; depmod "$1"'
for turn in first again; do
    package --install "$bench"/*.deb
    inside "$INSTALLED"
done
package --purge tautline-dkms
inside "$GONE""#;
/// What comes of the installation.
const INSTALLED: &str = r#"release=$1
. /usr/src/taut-path-*/dkms.conf
built=/lib/modules/$release/updates/dkms
dkms status | grep "^$PACKAGE_NAME/$PACKAGE_VERSION, $release, x86_64: installed"
grep -q "updates/dkms/taut_path.ko" "/lib/modules/$release/modules.dep"
cp "/var/lib/dkms/$PACKAGE_NAME/$PACKAGE_VERSION/$release/x86_64/log/make.log" /bench/out
cp "$built"/taut_path.ko* /bench/out"#;
/// And of the removal.
const GONE: &str = r#"[ -z "$(dkms status)" ]
[ ! -e "/lib/modules/$1/updates/dkms" ]
[ -z "$(ls -d /usr/src/taut-path-* /var/lib/dkms/taut-path 2>/dev/null)" ]"#;

/// Installs the package twice and purges it, for a kernel; the module that was installed goes to `out`.
///
/// # Errors
/// A step fails, something is left, or the build has a warning.
pub(super) fn run(series: Series, kernel: &Kernel, out: &Path) -> Result<PathBuf> {
    let workshop = Workshop::ensure(series, kernel)?;
    let files = ensure_tools(series)?;
    let place = tempfile::Builder::new().prefix("taut-dkms-").tempdir()?;
    let (bench, mounts) = (place.path().join("bench"), place.path().join("mounts"));
    for directory in [bench.join("out"), mounts.clone()] {
        fs::create_dir_all(directory)?;
    }
    deb::module(&bench, dist::committed()?)?;
    fs::copy(kernel.modules().join("kernel/drivers/net/dummy.ko"), bench.join("dummy.ko"))?;
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !shell::is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", ENTER, "enter"]).arg(workshop.root()).arg(&files).arg(&bench).arg(&mounts);
    command.arg(&kernel.release).env("INSTALLED", INSTALLED).env("GONE", GONE).stdin(Stdio::null());
    let output = command.output().context("cannot run unshare (util-linux)")?;
    let log = fs::read_to_string(bench.join("out/make.log")).unwrap_or_default();
    if !output.status.success() {
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        bail!("dkms fails for Linux {}:\n{said}{log}", kernel.release);
    }
    if log.lines().any(is_complaint) {
        bail!("dkms builds with warnings for Linux {}:\n{log}", kernel.release);
    }
    let built = fs::read_dir(bench.join("out"))?.flatten().map(|entry| entry.path());
    let built = built.into_iter().find(|path| path.to_string_lossy().contains(".ko")).context("dkms left no module")?;
    let module = out.join(built.file_name().context("a module has a name")?);
    fs::copy(&built, &module).with_context(|| format!("cannot write {}", module.display()))?;
    Ok(module)
}

/// dkms and what it calls, from the cache; fetched now when it is not there.
pub(super) fn ensure_tools(series: Series) -> Result<PathBuf> {
    let cache = tools::user_cache()?.join("lab");
    let root = cache.join(format!("dkms-{}", series.debian()));
    if !root.is_dir() {
        fs::create_dir_all(&cache)?;
        let making = tempfile::Builder::new().prefix("fetch-").tempdir_in(&cache)?;
        let (lists, made) = (making.path().join("apt"), making.path().join("root"));
        fs::create_dir(&lists)?;
        let apt = Apt::of_release(series.debian(), series.architecture(), series.with_security_updates(), &lists)?;
        eprintln!("fetching dkms of Debian {}, once", series.debian());
        apt.unpack_all(TOOLS.into_iter(), &made)?;
        apt.unpack("dkms", &made)?;
        // Another process may have been as quick; then this one's work is dropped.
        if let Err(error) = fs::rename(&made, &root)
            && !root.is_dir()
        {
            return Err(error).with_context(|| format!("cannot create {}", root.display()));
        }
    }
    Ok(root)
}
