use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// A Unix socket's name in the file system. It goes when this goes, unless another's is there by then.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    is: Option<(u64, u64)>,
}

impl SocketFile {
    /// That of a socket which was bound to `path` a moment ago.
    pub fn of(path: PathBuf) -> Self {
        Self { is: identity(&path), path }
    }

    /// Makes way for a socket: a file of a socket of this kind that nobody has open any more is removed. Whether it
    /// was; any other file stays.
    ///
    /// # Errors
    /// As socket(2) and unlink(2).
    pub fn remove_dead(path: &Path, kind: Type) -> io::Result<bool> {
        if identity(path).is_none() {
            return Ok(false);
        }
        let socket = Socket::new(Domain::UNIX, kind.cloexec().nonblocking(), None)?;
        // Any other error is of a socket that is there: of another kind, with many who wait, or another user's
        // (unix(7)).
        let error = socket.connect(&SockAddr::unix(path)?).err();
        if error.is_none_or(|error| error.kind() != io::ErrorKind::ConnectionRefused) {
            return Ok(false);
        }
        std::fs::remove_file(path)?;
        Ok(true)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already is as good.
        if self.is.is_some() && identity(&self.path) == self.is {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Of a socket's file; of nothing else.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let about = std::fs::symlink_metadata(path).ok()?;
    about.file_type().is_socket().then(|| (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("taut-socket-file-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn only_the_file_of_a_dead_socket_makes_way() {
        let path = fresh("dead");
        assert!(!SocketFile::remove_dead(&path, Type::STREAM).unwrap());
        fs::write(&path, "no socket").unwrap();
        assert!(!SocketFile::remove_dead(&path, Type::STREAM).unwrap());
        fs::remove_file(&path).unwrap();

        let datagrams = UnixDatagram::bind(&path).unwrap();
        for kind in [Type::STREAM, Type::DGRAM] {
            assert!(!SocketFile::remove_dead(&path, kind).unwrap(), "{kind:?}");
        }
        drop(datagrams);
        assert!(SocketFile::remove_dead(&path, Type::DGRAM).unwrap());
        assert!(!path.exists());

        // One with as many who wait as it takes is alive.
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
                let _ = socket.connect(&SockAddr::unix(&path).unwrap());
                socket
            })
            .collect();
        for kind in [Type::STREAM, Type::DGRAM] {
            assert!(!SocketFile::remove_dead(&path, kind).unwrap(), "{kind:?}");
        }
        drop((listener, waiting));
        assert!(SocketFile::remove_dead(&path, Type::STREAM).unwrap());
    }

    #[test]
    fn the_file_of_a_successor_stays() {
        let path = fresh("successor");
        let socket = UnixListener::bind(&path).unwrap();
        let file = SocketFile::of(path.clone());
        fs::remove_file(&path).unwrap();
        let _successor = UnixListener::bind(&path).unwrap();
        drop((socket, file));
        assert!(path.exists());

        drop(SocketFile::of(path.clone()));
        assert!(!path.exists());
    }
}
