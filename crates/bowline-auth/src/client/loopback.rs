//! [`Loopback`]: a user agent that receives the redirect on a loopback listener (RFC 8252).

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

use super::user_agent::{AppError, AuthorizationPrompt, UserAgent};

/// Opens the authorization URL in a browser, and receives the redirect on a loopback listener.
///
/// # Examples
///
/// ```
/// use bowline_auth::client::{Loopback, OAuth};
///
/// let program = std::env::var_os("BROWSER").unwrap_or("xdg-open".into());
/// let browser = Loopback::new(move |url| {
///     std::process::Command::new(&program).arg(url).spawn()?;
///     Ok(())
/// });
/// let oauth = OAuth::new("https://example.com/mcp").user_agent(browser);
/// ```
pub struct Loopback {
    open: Arc<OpenUrlFn>,
    /// The port of a registered redirect URI.
    fixed_port: Option<u16>,
    path: String,
    /// The last port. It is tried first, because some servers compare the port of a registered redirect URI.
    last_port: AtomicU16,
}

type OpenUrlFn = dyn Fn(&str) -> Result<(), AppError> + Send + Sync;

impl Loopback {
    /// Creates a user agent. `open` receives the authorization URL, and opens or prints it.
    pub fn new(open: impl Fn(&str) -> Result<(), AppError> + Send + Sync + 'static) -> Self {
        Self {
            open: Arc::new(open),
            fixed_port: None,
            path: "/callback".into(),
            last_port: AtomicU16::new(0),
        }
    }

    /// Sets the port of a registered redirect URI. Defaults to any free port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.fixed_port = Some(port);
        self
    }

    /// Sets the path of a registered redirect URI. Defaults to `/callback`.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        let path = path.into();
        self.path = match path.starts_with('/') {
            true => path,
            false => format!("/{path}"),
        };
        self
    }

    async fn listen(&self) -> Result<Box<dyn AuthorizationPrompt>, AppError> {
        let bind = |port| TcpListener::bind(("127.0.0.1", port));
        let listener = match self.fixed_port {
            Some(port) => bind(port).await?,
            None => match bind(self.last_port.load(Ordering::Relaxed)).await {
                Ok(listener) => listener,
                Err(_) => bind(0).await?,
            },
        };
        let port = listener.local_addr()?.port();
        self.last_port.store(port, Ordering::Relaxed);
        Ok(Box::new(LoopbackPrompt {
            listener,
            redirect_uri: format!("http://127.0.0.1:{port}{}", self.path),
            path: self.path.clone(),
            open: self.open.clone(),
        }))
    }
}

impl UserAgent for Loopback {
    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn AuthorizationPrompt>, AppError>> {
        Box::pin(self.listen())
    }
}

impl std::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loopback")
            .field("fixed_port", &self.fixed_port)
            .finish_non_exhaustive()
    }
}

struct LoopbackPrompt {
    listener: TcpListener,
    redirect_uri: String,
    path: String,
    open: Arc<OpenUrlFn>,
}

impl AuthorizationPrompt for LoopbackPrompt {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn open(self: Box<Self>, url: String) -> BoxFuture<'static, Result<String, AppError>> {
        Box::pin(async move {
            let expected = ExpectedRedirect {
                state: query_param(&url, "state"),
                redirect_uri: self.redirect_uri,
                path: self.path,
            };
            (self.open)(&url)?;
            wait_for_redirect(self.listener, Arc::new(expected)).await
        })
    }
}

/// The redirect that the listener waits for.
struct ExpectedRedirect {
    redirect_uri: String,
    path: String,
    state: Option<String>,
}

/// Waits for the redirect with the expected `state`. Other requests, such as those of a web page that scans ports, get
/// 404 and do not end the wait.
async fn wait_for_redirect(
    listener: TcpListener,
    expected: Arc<ExpectedRedirect>,
) -> Result<String, AppError> {
    let (sender, mut redirects) = mpsc::channel(1);
    // Dropping the set aborts the other connections.
    let mut connections = JoinSet::new();
    let mut oldest = VecDeque::new();
    loop {
        tokio::select! {
            biased; // the redirect first: a flood of connections must not delay it
            Some(address) = redirects.recv() => return Ok(address),
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let connection = handle_connection(stream, expected.clone(), sender.clone());
                oldest.push_back(connections.spawn(tokio::time::timeout(CONNECTION_TIMEOUT, connection)));
                oldest.retain(|connection| !connection.is_finished());
                // Abort the oldest connection; otherwise silent local connections could block the browser.
                if oldest.len() > MAX_CONNECTIONS
                    && let Some(connection) = oldest.pop_front()
                {
                    connection.abort();
                }
            }
        }
    }
}

async fn handle_connection(
    mut stream: TcpStream,
    expected: Arc<ExpectedRedirect>,
    redirects: mpsc::Sender<String>,
) -> Option<()> {
    let target = read_target(&mut stream).await?;
    let (path, _) = target.split_once('?').unwrap_or((&target, ""));
    let address = format!("{}{}", expected.redirect_uri, &target[path.len()..]);
    let is_expected = path == expected.path && query_param(&address, "state") == expected.state;
    let (status, text) = match is_expected {
        true => ("200 OK", "Done. You can close this window."),
        false => ("404 Not Found", "Not found."),
    };
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{text}</title><p>{text}</p></html>"
    );
    let length = page.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{page}"
    );
    // The redirect counts even if the browser closes the connection before it has read the page.
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
    if is_expected {
        redirects.send(address).await.ok()?;
    }
    Some(())
}

/// Reads a request head and returns the target of its GET.
async fn read_target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD_BYTES || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    target(&head)
}

/// Returns the target in the head of a GET request.
pub(crate) fn target(head: &[u8]) -> Option<String> {
    let head = std::str::from_utf8(head).ok()?;
    let target = head.strip_prefix("GET ")?.split([' ', '\r', '\n']).next()?;
    target.starts_with('/').then(|| target.to_owned())
}

fn query_param(address: &str, name: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    let mut pairs = url.query_pairs();
    let found = pairs.find(|(own, _)| own == name);
    found.map(|(_, value)| value.into_owned())
}

const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_CONNECTIONS: usize = 16;
/// How long a connection may take to send its request; browsers open speculative connections.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

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
    async fn only_a_redirect_with_the_expected_state_ends_the_wait() {
        let prompt = Loopback::new(|_| Ok(())).prepare().await.unwrap();
        let redirect_uri = prompt.redirect_uri().to_owned();
        let open = prompt.open("https://as.example/authorize?state=s1".into());
        let waiting = tokio::spawn(open);

        let silent =
            TcpStream::connect(redirect_uri.replace("http://", "").replace("/callback", ""));
        let silent = silent.await.unwrap();
        let wrong_state = get(&format!("{redirect_uri}?code=evil&state=s2")).await;
        let wrong_path = get(&format!("{redirect_uri}/other?state=s1")).await;
        let expected = get(&format!("{redirect_uri}?code=c&state=s1")).await;

        assert!(wrong_state.starts_with("HTTP/1.1 404"), "{wrong_state}");
        assert!(wrong_path.starts_with("HTTP/1.1 404"), "{wrong_path}");
        assert!(expected.contains("You can close this window"), "{expected}");
        let redirect = waiting.await.unwrap().unwrap();
        assert_eq!(redirect, format!("{redirect_uri}?code=c&state=s1"));
        drop(silent);
    }

    #[tokio::test]
    async fn a_configured_path_replaces_the_default_path() {
        let loopback = Loopback::new(|_| Ok(())).path("/c/oauth");
        let prompt = loopback.prepare().await.unwrap();
        let redirect_uri = prompt.redirect_uri().to_owned();
        let waiting = tokio::spawn(prompt.open("https://as.example/authorize?state=s1".into()));

        assert!(redirect_uri.ends_with("/c/oauth"), "{redirect_uri}");
        let elsewhere = redirect_uri.replace("/c/oauth", "/callback");
        let wrong_path = get(&format!("{elsewhere}?code=c&state=s1")).await;
        let expected = get(&format!("{redirect_uri}?code=c&state=s1")).await;

        assert!(wrong_path.starts_with("HTTP/1.1 404"), "{wrong_path}");
        assert!(expected.starts_with("HTTP/1.1 200"), "{expected}");
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn silent_connections_do_not_block_the_browser() {
        let prompt = Loopback::new(|_| Ok(())).prepare().await.unwrap();
        let redirect_uri = prompt.redirect_uri().to_owned();
        let waiting = tokio::spawn(prompt.open("https://as.example/authorize?state=s1".into()));
        let address = redirect_uri.replace("http://", "").replace("/callback", "");
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS + 16 {
            silent.push(TcpStream::connect(&address).await.unwrap());
        }

        let address = format!("{redirect_uri}?code=c&state=s1");
        // Well before the silent connections time out.
        let expected = tokio::time::timeout(CONNECTION_TIMEOUT * 4 / 5, get(&address)).await;

        let expected = expected.expect("the browser is served");
        assert!(expected.starts_with("HTTP/1.1 200"), "{expected}");
        waiting.await.unwrap().unwrap();
        drop(silent);
    }

    #[tokio::test]
    async fn a_taken_port_fails_only_if_it_was_configured() {
        let loopback = Loopback::new(|_| Ok(()));

        let first = loopback.prepare().await.unwrap();
        let second = loopback.prepare().await.unwrap();
        let port = Url::parse(first.redirect_uri()).unwrap().port().unwrap();
        let third = Loopback::new(|_| Ok(())).port(port).prepare().await;

        assert_ne!(first.redirect_uri(), second.redirect_uri());
        assert!(third.is_err());
    }

    #[tokio::test]
    async fn a_browser_that_fails_to_open_ends_the_wait() {
        let loopback = Loopback::new(|_| Err("there is no browser".into()));
        let prompt = loopback.prepare().await.unwrap();

        let outcome = prompt.open("https://as.example/authorize".into()).await;

        assert_eq!(outcome.unwrap_err().to_string(), "there is no browser");
    }
}
