//! Guarded servers, and whoever gives tokens for them.

use std::time::Duration;

use bowline::exchange::Principal;
use bowline::http::client::{HttpSend, HyperSend, RequestBody};
use bowline::{Client, Error, Server, Tool};
use bowline_auth::server::{JwtVerifier, ResourceServer};
use bowline_example_authorization_server::{AuthorizationServer, User};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};
use tower_layer::Layer;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            a_stranger_is_told_where_to_get_a_token,
            "hosting:auth:missing-401",
            "hosting:auth:metadata-endpoints",
            "hosting:auth:prm:authorization-servers-field",
            "hosting:auth:query-token-ignored",
        )
        .over_http(),
        scenario!(
            a_handler_knows_on_whose_behalf_it_works,
            "hosting:auth:authinfo-propagates",
        )
        .over_http(),
        scenario!(
            a_token_that_is_no_good_here_is_refused,
            "hosting:auth:invalid-401",
            "hosting:auth:expired-401",
            "hosting:auth:aud-validation",
        )
        .over_http(),
        scenario!(
            a_token_that_allows_too_little_is_told_what_is_missing,
            "hosting:auth:scope-403",
        )
        .over_http(),
        scenario!(
            a_client_introduces_itself_and_is_told_back,
            "hosting:auth:as-router",
            "hosting:auth:as:register-echo",
            "hosting:auth:as:register-error-response",
            "hosting:auth:as:redirect-uri-scheme",
        )
        .modern()
        .over_http1(),
        scenario!(
            a_code_works_once_for_whoever_asked_for_it,
            "hosting:auth:as:authorize-requires-pkce",
            "hosting:auth:as:verifier-mismatch",
            "hosting:auth:as:code-single-use",
            "hosting:auth:as:redirect-uri-binding",
            "hosting:auth:as:token-cache-headers",
        )
        .modern()
        .over_http1(),
    ]
}

async fn a_stranger_is_told_where_to_get_a_token(world: World) {
    let place = Place::new("read").await;
    let token = place.token("read").await;

    for url in [
        place.resource.clone(),
        format!("{}?access_token={token}", place.resource),
    ] {
        let refused = world.connect_to(&url).await;
        let refused = match refused {
            Ok(client) => client.call_tool("whoami", ()).await.map(drop),
            Err(error) => Err(error),
        };

        let Err(Error::Unauthorized { challenges, .. }) = refused else {
            panic!("it was not refused: {refused:?}");
        };
        assert_eq!(challenges[0].error(), None);
        assert_eq!(challenges[0].scope(), Some("read"));
        let document = challenges[0].resource_metadata().unwrap();
        let document = fetch(document).await.body;
        assert_eq!(document["resource"], *place.resource);
        assert_eq!(document["authorization_servers"], json!([place.issuer]));
    }
}

async fn a_handler_knows_on_whose_behalf_it_works(world: World) {
    let place = Place::new("read").await;

    let client = place
        .connect(&world, &place.token("read").await)
        .await
        .unwrap();
    let name = client.call_tool("whoami", ()).await.unwrap().text();

    assert_eq!(name, format!("{} ada: read", place.issuer));
    client.close().await.unwrap();
}

async fn a_token_that_is_no_good_here_is_refused(world: World) {
    let (place, other) = (Place::new("read").await, Place::new("read").await);
    let expired = Place::with_lifetime("read", Duration::ZERO).await;

    for (place, token) in [
        (&place, "none".to_owned()),
        (&place, other.token("read").await),
        (&expired, expired.token("read").await),
        (&place, place.token_for_another("read").await),
    ] {
        let refused = place.refused(&world, &token, "whoami").await;

        let Error::Unauthorized { challenges, .. } = refused else {
            panic!("it was refused otherwise: {refused:?}");
        };
        assert_eq!(challenges[0].error(), Some("invalid_token"));
        assert_eq!(challenges[0].scope(), Some("read"));
    }
}

async fn a_token_that_allows_too_little_is_told_what_is_missing(world: World) {
    let place = Place::new("read").await;

    for (scope, tool, wanted) in [("read", "write", "read write"), ("write", "whoami", "read")] {
        let token = place.token(scope).await;
        let refused = place.refused(&world, &token, tool).await;

        let Error::Unauthorized { challenges, .. } = refused else {
            panic!("it was refused otherwise: {refused:?}");
        };
        assert_eq!(challenges[0].error(), Some("insufficient_scope"));
        assert_eq!(challenges[0].scope(), Some(wanted));
    }
}

async fn a_client_introduces_itself_and_is_told_back(_: World) {
    let place = Place::new("read").await;
    let metadata = fetch(&format!(
        "{}/.well-known/oauth-authorization-server",
        place.issuer
    ))
    .await;
    let registration = metadata.body["registration_endpoint"].as_str().unwrap();
    let about = json!({"client_name": "stranger", "redirect_uris": [CALLBACK], "software_id": "s"});

    let registered = post_json(registration, &about).await;

    assert_eq!(registered.status, 201);
    for (name, value) in about.as_object().unwrap() {
        assert_eq!(registered.body[name], *value);
    }
    for endpoint in [
        "authorization_endpoint",
        "token_endpoint",
        "revocation_endpoint",
    ] {
        assert!(metadata.body[endpoint].is_string(), "{endpoint}");
    }
    for redirect in ["http://evil.example/", "javascript:alert(1)"] {
        let refused = post_json(registration, &json!({"redirect_uris": [redirect]})).await;

        assert_eq!(refused.status, 400, "{redirect}");
        assert_eq!(refused.body["error"], "invalid_redirect_uri", "{redirect}");
    }
}

async fn a_code_works_once_for_whoever_asked_for_it(_: World) {
    let place = Place::new("read").await;
    let client = place.register().await;

    let without = place.ask(&client, "read", "").await;
    let code = place.code(&client, "read").await;
    let good = place.redeem(&client, &code, VERIFIER, CALLBACK).await;
    let code = place.code(&client, "read").await;
    let wrong = place
        .redeem(&client, &code, "another verifier", CALLBACK)
        .await;
    let again = place.redeem(&client, &code, VERIFIER, CALLBACK).await;
    let code = place.code(&client, "read").await;
    let elsewhere = format!("{CALLBACK}/elsewhere");
    let elsewhere = place.redeem(&client, &code, VERIFIER, &elsewhere).await;

    assert!(without.contains("error=invalid_request"), "{without}");
    assert_eq!(good.status, 200);
    assert_eq!(good.cache_control, "no-store");
    for refused in [wrong, again, elsewhere] {
        assert_eq!(refused.body["error"], "invalid_grant");
    }
}

/// A guarded server, and one that gives tokens for it.
pub(crate) struct Place {
    pub(crate) issuer: String,
    pub(crate) resource: String,
    _serving: tokio::task::JoinSet<()>,
}

impl Place {
    pub(crate) async fn new(scope: &'static str) -> Self {
        Self::with_lifetime(scope, Duration::from_secs(60)).await
    }

    async fn with_lifetime(scope: &'static str, lifetime: Duration) -> Self {
        let issuing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", issuing.local_addr().unwrap());
        let service = notes().http();
        let service = service.legacy(bowline::http::legacy::Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let resource = format!("http://{}/mcp", bound.addr());
        let authorization = AuthorizationServer::new(issuer.clone())
            .protects(&resource, &["read", "write"])
            .protects(ANOTHER, &["read"])
            .token_lifetime(lifetime);
        let keys = JwtVerifier::discover(issuer.clone()).unwrap();
        let guard = ResourceServer::new(&resource, issuer.clone(), keys).unwrap();
        let guard = guard.scopes([scope]).leeway(Duration::ZERO);
        let guarded = guard.layer(bound.service());
        let mut serving = tokio::task::JoinSet::new();
        let router = authorization.router();
        serving.spawn(async move { axum::serve(issuing, router).await.unwrap() });
        serving.spawn(async move { bound.serve_through(guarded).await.unwrap() });
        Self {
            issuer,
            resource,
            _serving: serving,
        }
    }

    async fn connect(&self, world: &World, token: &str) -> bowline::Result<Client> {
        let bearer = format!("Bearer {token}").parse().unwrap();
        let connect = world.connect_to(&self.resource);
        connect.header(http::header::AUTHORIZATION, bearer).await
    }

    /// Why a call is refused.
    async fn refused(&self, world: &World, token: &str, tool: &'static str) -> Error {
        match self.connect(world, token).await {
            Ok(client) => client.call_tool(tool, ()).await.unwrap_err(),
            Err(error) => error,
        }
    }

    async fn register(&self) -> String {
        let about = json!({"redirect_uris": [CALLBACK]});
        let registered = post_json(&format!("{}/register", self.issuer), &about).await;
        registered.body["client_id"].as_str().unwrap().to_owned()
    }

    /// Where a user is sent after they were asked for something.
    async fn ask(&self, client: &str, scope: &str, challenge: &str) -> String {
        self.ask_for(&self.resource, client, scope, challenge).await
    }

    async fn ask_for(&self, resource: &str, client: &str, scope: &str, challenge: &str) -> String {
        let url = format!(
            "{}/authorize?response_type=code&client_id={client}&redirect_uri={CALLBACK}&scope={scope}\
             &code_challenge={challenge}&code_challenge_method=S256&resource={resource}",
            self.issuer
        );
        User::named("ada").visit(&url).await.unwrap()
    }

    async fn code(&self, client: &str, scope: &str) -> String {
        code_in(&self.ask(client, scope, CHALLENGE).await)
    }

    async fn redeem(&self, client: &str, code: &str, verifier: &str, redirect: &str) -> Answer {
        let form = format!(
            "grant_type=authorization_code&client_id={client}&code={code}&code_verifier={verifier}\
             &redirect_uri={redirect}"
        );
        let media = "application/x-www-form-urlencoded";
        post(&format!("{}/token", self.issuer), media, form).await
    }

    /// A token that allows this, on behalf of ada.
    async fn token(&self, scope: &str) -> String {
        self.token_of(&self.resource, scope).await
    }

    async fn token_for_another(&self, scope: &str) -> String {
        self.token_of(ANOTHER, scope).await
    }

    async fn token_of(&self, resource: &str, scope: &str) -> String {
        let client = self.register().await;
        let callback = self.ask_for(resource, &client, scope, CHALLENGE).await;
        let tokens = self
            .redeem(&client, &code_in(&callback), VERIFIER, CALLBACK)
            .await;
        tokens.body["access_token"].as_str().unwrap().to_owned()
    }
}

fn notes() -> Server {
    let whoami = Tool::new("whoami", async |principal: Principal| {
        let scopes: Vec<_> = principal.scopes().collect();
        format!(
            "{}: {}",
            principal.name().unwrap_or("nobody"),
            scopes.join(" ")
        )
    });
    let write = Tool::new("write", async || "written").scopes(["write"]);
    Server::new("notes", "1.0.0").tool(whoami).tool(write)
}

fn code_in(callback: &str) -> String {
    let code = callback.split("code=").nth(1).expect("a code");
    code.split('&').next().unwrap_or_default().to_owned()
}

/// What came back, which is JSON or nothing.
struct Answer {
    status: u16,
    cache_control: String,
    body: Value,
}

async fn fetch(url: &str) -> Answer {
    let mut request = http::Request::new(RequestBody::from(bytes::Bytes::new()));
    *request.uri_mut() = url.parse().unwrap();
    send(request).await
}

async fn post_json(url: &str, body: &Value) -> Answer {
    post(url, "application/json", body.to_string()).await
}

async fn post(url: &str, media: &str, body: String) -> Answer {
    let mut request = http::Request::new(RequestBody::from(bytes::Bytes::from(body)));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = url.parse().unwrap();
    request
        .headers_mut()
        .insert("content-type", media.parse().unwrap());
    send(request).await
}

async fn send(request: http::Request<RequestBody>) -> Answer {
    let response = HyperSend::plain().send(request).await.unwrap();
    let cache_control = response.headers().get("cache-control");
    let cache_control = cache_control.map_or("", |value| value.to_str().unwrap());
    Answer {
        status: response.status().as_u16(),
        cache_control: cache_control.to_owned(),
        body: serde_json::from_slice(&response.into_body().collect(64 * 1024).await.unwrap())
            .unwrap_or_default(),
    }
}

const ANOTHER: &str = "https://another.example/mcp";
const CALLBACK: &str = "http://127.0.0.1:7/callback";
/// The verifier of RFC 7636, appendix B, and its challenge.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
