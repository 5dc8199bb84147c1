//! Moving stdin and stdout from descriptors 0 and 1 to private ones, on Unix.

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

pub(super) type StdinReader = Pin<Box<dyn AsyncRead + Send>>;
pub(super) type StdoutWriter = Pin<Box<dyn AsyncWrite + Send>>;

/// Moves stdin and stdout to private descriptors, which children do not inherit.
pub(super) fn take_stdio() -> io::Result<(StdinReader, StdoutWriter)> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let shares_stderr = is_same(&output, &stderr)?;

    dup2_stdin(&null)?;
    dup2_stdout(if shares_stderr { &null } else { &stderr })?;

    let output = if shares_stderr {
        // Asynchronous writes need `O_NONBLOCK`, which would apply to stderr too and make prints to it fail.
        Box::pin(threads::write(output)?)
    } else {
        writer(output)?
    };
    Ok((reader(input)?, output))
}

fn reader(file: File) -> io::Result<StdinReader> {
    let kind = file.metadata()?.file_type();
    Ok(if kind.is_fifo() {
        Box::pin(pipe::Receiver::from_file(file)?)
    } else if kind.is_socket() {
        Box::pin(socket(file)?)
    } else {
        Box::pin(threads::read(file)?)
    })
}

fn writer(file: File) -> io::Result<StdoutWriter> {
    let kind = file.metadata()?.file_type();
    Ok(if kind.is_fifo() {
        Box::pin(pipe::Sender::from_file(file)?)
    } else if kind.is_socket() {
        Box::pin(socket(file)?)
    } else {
        Box::pin(threads::write(file)?)
    })
}

/// Wraps a socket of any family as a `UnixStream`, since only bytes are read and written.
fn socket(file: File) -> io::Result<UnixStream> {
    let socket = Socket::from(OwnedFd::from(file));
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}
