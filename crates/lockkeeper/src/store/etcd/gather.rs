//! Frames of one request in one packet.
//!
//! A request is three frames (headers, message, end). Several tasks of the driver make them, and each frame is flushed by itself: three system calls here,
//! and three wake-ups of the server, which cost it more than the request. So a flush first lets the other tasks of the executor run, and then writes
//! everything that has come together.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

/// More than this is not held back.
const MOST: usize = 64 * 1024;

/// A stream whose flush gathers what is written in one turn of the executor.
#[derive(Debug)]
pub(super) struct Gathered<S> {
    stream: S,
    /// Accepted, and not written yet.
    pending: Vec<u8>,
    /// How much of that was written.
    written: usize,
    /// The turn has passed.
    may_write: bool,
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    fn new(stream: S) -> Self {
        Self { stream, pending: Vec::new(), written: 0, may_write: false }
    }

    /// Writes all that is pending.
    fn write_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.pending.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(context, &self.pending[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.pending.clear();
        (self.written, self.may_write) = (0, false);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.pending.len() >= MOST {
            ready!(self.write_out(context))?;
        }
        self.pending.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pending.is_empty() {
            return Pin::new(&mut self.stream).poll_flush(context);
        }
        if !self.may_write {
            self.may_write = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.write_out(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_out(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

/// Makes such connections for tonic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connector;

impl Service<Uri> for Connector {
    type Response = TokioIo<Gathered<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(async move {
            let host = to.authority().map(|authority| authority.as_str()).unwrap_or_default();
            let stream = TcpStream::connect(host).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(Gathered::new(stream)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Counts writes, and takes at most so many bytes in each.
    #[derive(Default)]
    struct Counting {
        written: Vec<Vec<u8>>,
        most: usize,
    }

    impl AsyncWrite for Counting {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.most);
            self.written.push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_is_flushed_in_one_turn_is_one_write() {
        let mut stream = Gathered::new(Counting { most: usize::MAX, ..Counting::default() });
        let mut context = Context::from_waker(Waker::noop());
        let mut write = |stream: &mut Gathered<Counting>, bytes: &[u8]| {
            assert!(matches!(Pin::new(stream).poll_write(&mut context, bytes), Poll::Ready(Ok(n)) if n == bytes.len()));
        };
        let flush = |stream: &mut Gathered<Counting>| Pin::new(stream).poll_flush(&mut Context::from_waker(Waker::noop()));
        for (headers, message) in [(b"headers", b"message"), (b"HEADERS", b"MESSAGE")] {
            write(&mut stream, headers);
            assert!(flush(&mut stream).is_pending(), "others run first");
            write(&mut stream, message);
            assert!(flush(&mut stream).is_ready());
        }
        assert_eq!(stream.stream.written, [b"headersmessage", b"HEADERSMESSAGE"]);
        assert!(flush(&mut stream).is_ready(), "nothing is left");
    }

    #[test]
    fn nothing_is_lost_where_the_socket_takes_little_or_the_stream_ends() {
        let mut stream = Gathered::new(Counting { most: 3, ..Counting::default() });
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut stream).poll_write(&mut context, b"headers").is_ready());
        assert!(Pin::new(&mut stream).poll_flush(&mut context).is_pending());
        assert!(Pin::new(&mut stream).poll_flush(&mut context).is_ready());
        assert_eq!(stream.stream.written.concat(), b"headers");
        assert!(Pin::new(&mut stream).poll_write(&mut context, &[7; MOST]).is_ready());
        assert!(Pin::new(&mut stream).poll_write(&mut context, b"more").is_ready());
        assert_eq!(stream.stream.written.concat().len(), 7 + MOST, "no more than so much is held back");
        assert!(Pin::new(&mut stream).poll_shutdown(&mut context).is_ready());
        assert!(stream.stream.written.concat().ends_with(b"more"));
    }
}
