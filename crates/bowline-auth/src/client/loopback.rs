//! A listener on this machine that a browser is sent back to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::Url;

use super::user_agent::{AppError, UserAgent, Visit};

/// Opens a browser, and listens on this machine for it to be sent back.
///
/// # Examples
///
/// ```
/// use bowline_auth::client::{Loopback, OAuth};
///
/// let browser = Loopback::new(|url| {
///     println!("Open {url} in your browser.");
///     Ok(())
/// });
/// let oauth = OAuth::new("https://example.com/mcp").user_agent(browser);
/// ```
pub struct Loopback {
    open: Arc<Open>,
    /// The one that was registered by hand.
    fixed: Option<u16>,
    path: String,
    /// The one that was free the last time. It is tried again, because some servers register the port.
    last: AtomicU16,
}

type Open = dyn Fn(&str) -> Result<(), AppError> + Send + Sync;

impl Loopback {
    /// `open` is given an address, and opens a browser there or tells somebody to.
    pub fn new(open: impl Fn(&str) -> Result<(), AppError> + Send + Sync + 'static) -> Self {
        Self {
            open: Arc::new(open),
            fixed: None,
            path: "/callback".into(),
            last: AtomicU16::new(0),
        }
    }

    /// Listens on this port, rather than on any that is free: for clients whose redirect URI was registered.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.fixed = Some(port);
        self
    }

    /// Expects the browser at this path rather than at `/callback`: for clients whose redirect URI was registered.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        let path = path.into();
        self.path = match path.starts_with('/') {
            true => path,
            false => format!("/{path}"),
        };
        self
    }

    async fn listen(&self) -> Result<Box<dyn Visit>, AppError> {
        let bind = |port| TcpListener::bind(("127.0.0.1", port));
        let listener = match self.fixed {
            Some(port) => bind(port).await?,
            None => match bind(self.last.load(Ordering::Relaxed)).await {
                Ok(listener) => listener,
                Err(_) => bind(0).await?,
            },
        };
        let port = listener.local_addr()?.port();
        self.last.store(port, Ordering::Relaxed);
        Ok(Box::new(LoopbackVisit {
            listener,
            redirect_uri: format!("http://127.0.0.1:{port}{}", self.path),
            path: self.path.clone(),
            open: self.open.clone(),
        }))
    }
}

impl UserAgent for Loopback {
    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn Visit>, AppError>> {
        Box::pin(self.listen())
    }
}

impl std::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loopback")
            .field("fixed", &self.fixed)
            .finish_non_exhaustive()
    }
}

struct LoopbackVisit {
    listener: TcpListener,
    redirect_uri: String,
    path: String,
    open: Arc<Open>,
}

impl Visit for LoopbackVisit {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn open(self: Box<Self>, url: String) -> BoxFuture<'static, Result<String, AppError>> {
        Box::pin(async move {
            let expected = Expected {
                state: query(&url, "state"),
                redirect_uri: self.redirect_uri,
                path: self.path,
            };
            (self.open)(&url)?;
            wait(self.listener, Arc::new(expected)).await
        })
    }
}

/// Who is waited for.
struct Expected {
    redirect_uri: String,
    path: String,
    state: Option<String>,
}

/// Waits for the one who was sent. Others, such as a page that only knows the port, are turned away and change
/// nothing.
async fn wait(listener: TcpListener, expected: Arc<Expected>) -> Result<String, AppError> {
    let (came, mut coming) = mpsc::channel(1);
    // Dropped, with whoever is connected, as soon as somebody came.
    let mut visitors = JoinSet::new();
    let mut oldest = VecDeque::new();
    loop {
        tokio::select! {
            biased; // whoever came ends it, however many more connect
            Some(address) = coming.recv() => return Ok(address),
            Some(_) = visitors.join_next() => {}
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let visiting = receive(stream, expected.clone(), came.clone());
                oldest.push_back(visitors.spawn(tokio::time::timeout(PATIENCE, visiting)));
                oldest.retain(|visitor| !visitor.is_finished());
                // The longest silent one goes, or any program on this machine could keep the browser out.
                if oldest.len() > MAX_VISITORS
                    && let Some(visitor) = oldest.pop_front()
                {
                    visitor.abort();
                }
            }
        }
    }
}

async fn receive(
    mut stream: TcpStream,
    expected: Arc<Expected>,
    came: mpsc::Sender<String>,
) -> Option<()> {
    let target = read_target(&mut stream).await?;
    let (path, _) = target.split_once('?').unwrap_or((&target, ""));
    let address = format!("{}{}", expected.redirect_uri, &target[path.len()..]);
    let is_expected = path == expected.path && query(&address, "state") == expected.state;
    let (status, text) = match is_expected {
        true => ("200 OK", "Done. You can close this window."),
        false => ("404 Not Found", "There is nothing here."),
    };
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{text}</title><p>{text}</p></html>"
    );
    let length = page.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{page}"
    );
    // Somebody who leaves before the page is there was here nevertheless.
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
    if is_expected {
        came.send(address).await.ok()?;
    }
    Some(())
}

/// What a GET asks for: the second word of its first line.
async fn read_target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > LONGEST_HEAD || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    target(&head)
}

/// What the head of a GET asks for.
pub(crate) fn target(head: &[u8]) -> Option<String> {
    let head = std::str::from_utf8(head).ok()?;
    let target = head.strip_prefix("GET ")?.split([' ', '\r', '\n']).next()?;
    target.starts_with('/').then(|| target.to_owned())
}

fn query(address: &str, name: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    let mut pairs = url.query_pairs();
    let found = pairs.find(|(own, _)| own == name);
    found.map(|(_, value)| value.into_owned())
}

const LONGEST_HEAD: usize = 16 * 1024;
const MAX_VISITORS: usize = 16;
/// How long somebody may take to say what they want; browsers connect without saying anything.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(address: &str) -> String {
        let url = Url::parse(address).unwrap();
        let port = url.port().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let target = &address[address.find("/c").unwrap()..];
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        page
    }

    #[tokio::test]
    async fn the_one_who_was_sent_ends_the_wait_and_nobody_else() {
        let visit = Loopback::new(|_| Ok(())).prepare().await.unwrap();
        let here = visit.redirect_uri().to_owned();
        let open = visit.open("https://as.example/authorize?state=s1".into());
        let waiting = tokio::spawn(open);

        let silent = TcpStream::connect(here.replace("http://", "").replace("/callback", ""));
        let silent = silent.await.unwrap();
        let stranger = get(&format!("{here}?code=evil&state=s2")).await;
        let lost = get(&format!("{here}/other?state=s1")).await;
        let welcome = get(&format!("{here}?code=c&state=s1")).await;

        assert!(stranger.starts_with("HTTP/1.1 404"), "{stranger}");
        assert!(lost.starts_with("HTTP/1.1 404"), "{lost}");
        assert!(welcome.contains("You can close this window"), "{welcome}");
        let came = waiting.await.unwrap().unwrap();
        assert_eq!(came, format!("{here}?code=c&state=s1"));
        drop(silent);
    }

    #[tokio::test]
    async fn a_path_of_ones_own_is_the_only_one() {
        let loopback = Loopback::new(|_| Ok(())).path("/c/oauth");
        let visit = loopback.prepare().await.unwrap();
        let here = visit.redirect_uri().to_owned();
        let waiting = tokio::spawn(visit.open("https://as.example/authorize?state=s1".into()));

        assert!(here.ends_with("/c/oauth"), "{here}");
        let elsewhere = here.replace("/c/oauth", "/callback");
        let lost = get(&format!("{elsewhere}?code=c&state=s1")).await;
        let welcome = get(&format!("{here}?code=c&state=s1")).await;

        assert!(lost.starts_with("HTTP/1.1 404"), "{lost}");
        assert!(welcome.starts_with("HTTP/1.1 200"), "{welcome}");
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn connections_that_say_nothing_do_not_keep_the_browser_out() {
        let visit = Loopback::new(|_| Ok(())).prepare().await.unwrap();
        let here = visit.redirect_uri().to_owned();
        let waiting = tokio::spawn(visit.open("https://as.example/authorize?state=s1".into()));
        let address = here.replace("http://", "").replace("/callback", "");
        let mut silent = Vec::new();
        for _ in 0..MAX_VISITORS + 16 {
            silent.push(TcpStream::connect(&address).await.unwrap());
        }

        let address = format!("{here}?code=c&state=s1");
        // Not only when those who are silent have used up their time.
        let welcome = tokio::time::timeout(PATIENCE * 4 / 5, get(&address)).await;

        let welcome = welcome.expect("the browser is let in");
        assert!(welcome.starts_with("HTTP/1.1 200"), "{welcome}");
        waiting.await.unwrap().unwrap();
        drop(silent);
    }

    #[tokio::test]
    async fn a_port_that_somebody_else_has_is_not_insisted_on_unless_it_was_registered() {
        let loopback = Loopback::new(|_| Ok(()));

        let first = loopback.prepare().await.unwrap();
        let second = loopback.prepare().await.unwrap();
        let port = Url::parse(first.redirect_uri()).unwrap().port().unwrap();
        let third = Loopback::new(|_| Ok(())).port(port).prepare().await;

        assert_ne!(first.redirect_uri(), second.redirect_uri());
        assert!(third.is_err());
    }

    #[tokio::test]
    async fn a_browser_that_does_not_open_ends_the_wait() {
        let loopback = Loopback::new(|_| Err("there is no browser".into()));
        let visit = loopback.prepare().await.unwrap();

        let outcome = visit.open("https://as.example/authorize".into()).await;

        assert_eq!(outcome.unwrap_err().to_string(), "there is no browser");
    }
}
