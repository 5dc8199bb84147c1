//! A guarded server, one that gives tokens for it, and the time that both read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowline::exchange::Principal;
use bowline::http::legacy::Legacy;
use bowline::{Server, Tool};
use bowline_auth::server::{Introspection, JwtVerifier, ResourceServer};
use bowline_example_authorization_server::AuthorizationServer;
use tokio::task::JoinHandle;
use tower_layer::Layer;

/// Both servers, and the time that they share.
pub(crate) struct World {
    pub(crate) authorization: AuthorizationServer,
    pub(crate) issuer: String,
    pub(crate) resource: String,
    pub(crate) clock: Arc<AtomicU64>,
    serving: Vec<JoinHandle<()>>,
}

/// How the guarded server makes sure of tokens.
#[derive(Clone, Copy)]
pub(crate) enum By {
    Keys,
    Asking,
}

impl World {
    pub(crate) async fn new(by: By) -> Self {
        Self::guarded(by, |guard| guard).await
    }

    /// A world with a say in how its server is guarded.
    pub(crate) async fn guarded(
        by: By,
        choose: impl FnOnce(ResourceServer) -> ResourceServer,
    ) -> Self {
        // Clients read a clock of their own, which says the same at first.
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let clock = Arc::new(AtomicU64::new(start.as_secs()));
        let issuing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", issuing.local_addr().unwrap());
        let service = notes().http().legacy(Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let resource = format!("http://{}/mcp", bound.addr());

        let now = reading(&clock);
        let authorization = AuthorizationServer::new(issuer.clone())
            .protects(&resource, &["read", "write"])
            .introspected_by("notes", "hush")
            .token_lifetime(Duration::from_secs(300))
            .clock(now);
        let guard = match by {
            By::Keys => {
                let keys = JwtVerifier::discover(issuer.clone()).unwrap();
                let keys = keys.fetch_again_after(Duration::ZERO);
                ResourceServer::new(&resource, issuer.clone(), keys)
            }
            By::Asking => {
                let asking = Introspection::new(issuer.clone(), &format!("{issuer}/introspect"));
                let asking = asking.unwrap().credentials("notes", "hush");
                ResourceServer::new(&resource, issuer.clone(), asking)
            }
        };
        let guard = choose(guard.unwrap())
            .scopes(["read"])
            .leeway(Duration::ZERO);
        let guarded = guard.clock(reading(&clock)).layer(bound.service());
        let router = authorization.router();
        let serving = vec![
            tokio::spawn(async move { axum::serve(issuing, router).await.unwrap() }),
            tokio::spawn(async move { bound.serve_through(guarded).await.unwrap() }),
        ];
        Self {
            authorization,
            issuer,
            resource,
            clock,
            serving,
        }
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

pub(crate) fn reading(clock: &Arc<AtomicU64>) -> impl Fn() -> SystemTime + Send + Sync + 'static {
    let clock = clock.clone();
    move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed))
}

pub(crate) fn notes() -> Server {
    let whoami = Tool::new("whoami", async |principal: Principal| {
        principal.name().unwrap_or("nobody").to_owned()
    });
    let write = Tool::new("write", async || "written").scopes(["write"]);
    Server::new("notes", "1.0.0").tool(whoami).tool(write)
}
