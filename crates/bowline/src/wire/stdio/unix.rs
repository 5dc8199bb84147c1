//! Moving the wire away from descriptors 0 and 1, and waiting for whatever it is.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream as Socket;
use std::pin::Pin;

use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::threads;

pub(super) type Input = Pin<Box<dyn AsyncRead + Send>>;
pub(super) type Output = Pin<Box<dyn AsyncWrite + Send>>;

/// Moves the wire to private descriptors, which no child inherits.
pub(super) fn take() -> io::Result<(Input, Output)> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let shares_stderr = is_same(&output, &stderr)?;

    dup2_stdin(&null)?;
    dup2_stdout(if shares_stderr { &null } else { &stderr })?;

    let output = if shares_stderr {
        // To be waited for it would have to become non-blocking, and stderr with it, which then fails.
        Box::pin(threads::write(output)?)
    } else {
        writer(output)?
    };
    Ok((reader(input)?, output))
}

fn reader(file: File) -> io::Result<Input> {
    let kind = file.metadata()?.file_type();
    Ok(if kind.is_fifo() {
        Box::pin(pipe::Receiver::from_file(file)?)
    } else if kind.is_socket() {
        Box::pin(socket(file)?)
    } else {
        Box::pin(threads::read(file)?)
    })
}

fn writer(file: File) -> io::Result<Output> {
    let kind = file.metadata()?.file_type();
    Ok(if kind.is_fifo() {
        Box::pin(pipe::Sender::from_file(file)?)
    } else if kind.is_socket() {
        Box::pin(socket(file)?)
    } else {
        Box::pin(threads::write(file)?)
    })
}

/// A socket is read and written as bytes only, so it may be of any family.
fn socket(file: File) -> io::Result<UnixStream> {
    let socket = Socket::from(OwnedFd::from(file));
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}
