use std::io;
use std::os::fd::OwnedFd;

use taut_link::Link;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::buffer::BUFFER_BYTES;

/// A task for each link on a runtime of one thread.
pub(super) fn run(links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut tasks = Vec::with_capacity(links.len());
        for link in links {
            link.set_nonblocking(true).map_err(io::Error::other)?;
            let is_tcp = link.peer_address().is_some();
            let fd = OwnedFd::from(link);
            tasks.push(if is_tcp {
                tokio::spawn(echo(TcpStream::from_std(fd.into())?))
            } else {
                tokio::spawn(echo(UnixStream::from_std(fd.into())?))
            });
        }
        ready();
        for task in tasks {
            task.await.map_err(io::Error::other)?;
        }
        Ok(())
    })
}

/// Answers until the link is closed, by whomever and for whatever reason.
async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer).await {
            Ok(length) if length > 0 && stream.write_all(&buffer[..length]).await.is_ok() => {}
            _ => return,
        }
    }
}
