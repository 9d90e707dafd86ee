//! What one run of tests needs to do once, for however many guests it starts: to see that packages are installed, to
//! build `taut` and modules of ours from sources that do not change meanwhile. A directory of the run tells what was
//! done, and has what was made.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{FlockOperation, flock};

/// The variable that names the directory. Without it everything is done each time.
pub(crate) const DIRECTORY: &str = "TAUT_LAB_ONCE";

/// Does the work, unless a process of this run has done it.
///
/// # Errors
/// Those of the work, which is tried again the next time.
pub(super) fn done(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    done_in(directory().as_deref(), name, work)
}

/// The files that the work makes, by name: made now, or by a process of this run before.
///
/// # Errors
/// Those of the work, which is tried again the next time.
pub(super) fn made(
    name: &str,
    work: impl FnOnce() -> Result<BTreeMap<String, Vec<u8>>>,
) -> Result<BTreeMap<String, Vec<u8>>> {
    made_in(directory().as_deref(), name, work)
}

fn directory() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}

fn done_in(directory: Option<&Path>, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let Some(directory) = directory else { return work() };
    let _turn = turn(directory, name)?;
    let done = directory.join(format!("{name}.done"));
    if !done.exists() {
        work()?;
        File::create(done)?;
    }
    Ok(())
}

fn made_in(
    directory: Option<&Path>,
    name: &str,
    work: impl FnOnce() -> Result<BTreeMap<String, Vec<u8>>>,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let Some(directory) = directory else { return work() };
    let _turn = turn(directory, name)?;
    let place = directory.join(name);
    if !place.is_dir() {
        let made = work()?;
        let making = tempfile::Builder::new().prefix("making-").tempdir_in(directory)?;
        for (file, contents) in &made {
            fs::write(making.path().join(file), contents)?;
        }
        fs::rename(making.keep(), &place)?;
        return Ok(made);
    }
    let mut made = BTreeMap::new();
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        made.insert(entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?);
    }
    Ok(made)
}

/// Another process may be at the same; its turn ends with it.
fn turn(directory: &Path, name: &str) -> Result<File> {
    let lock = File::create(directory.join(format!("{name}.lock")))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;

    use super::*;

    #[test]
    fn what_a_run_has_done_it_does_not_do_again() {
        let directory = tempfile::tempdir().unwrap();
        let times = Cell::new(0);
        let work = || {
            times.set(times.get() + 1);
            Ok(())
        };
        for _ in 0..2 {
            done_in(Some(directory.path()), "a", work).unwrap();
        }
        assert_eq!(times.get(), 1);
        // Something else, what failed before, and what belongs to no run.
        done_in(Some(directory.path()), "b", work).unwrap();
        done_in(Some(directory.path()), "c", || bail!("not this time")).unwrap_err();
        done_in(Some(directory.path()), "c", work).unwrap();
        done_in(None, "a", work).unwrap();
        assert_eq!(times.get(), 4);
    }

    #[test]
    fn what_a_run_has_made_it_has_again() {
        let directory = tempfile::tempdir().unwrap();
        let files = || BTreeMap::from([("a.ko".to_owned(), vec![1, 0, 255]), ("b.ko".to_owned(), Vec::new())]);
        let with_work = made_in(Some(directory.path()), "modules", || Ok(files())).unwrap();
        assert_eq!(with_work, files());
        let without = made_in(Some(directory.path()), "modules", || bail!("once is enough")).unwrap();
        assert_eq!(without, files());
        made_in(Some(directory.path()), "others", || bail!("with warnings")).unwrap_err();
        made_in(None, "modules", || bail!("no run")).unwrap_err();
    }
}
