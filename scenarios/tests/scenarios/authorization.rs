//! Servers that require tokens, and the example authorization server that issues them.

use std::time::Duration;

use bowline::exchange::Principal;
use bowline::http::client::{HttpClient, HyperClient, RequestBody};
use bowline::{Client, Error, Server, Tool};
use bowline_auth::server::{JwtVerifier, ResourceServer};
use bowline_example_authorization_server::{AuthorizationServer, SimulatedUser};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            a_request_without_a_token_gets_401_with_the_metadata_url,
            "hosting:auth:missing-401",
            "hosting:auth:metadata-endpoints",
            "hosting:auth:prm:authorization-servers-field",
            "hosting:auth:query-token-ignored",
        )
        .over_http(),
        scenario!(
            a_handler_receives_the_principal_of_the_token,
            "hosting:auth:authinfo-propagates",
        )
        .over_http(),
        scenario!(
            an_unknown_foreign_or_expired_token_is_rejected,
            "hosting:auth:invalid-401",
            "hosting:auth:expired-401",
            "hosting:auth:aud-validation",
        )
        .over_http(),
        scenario!(
            a_token_with_insufficient_scope_gets_a_challenge_with_the_required_scope,
            "hosting:auth:scope-403",
        )
        .over_http(),
        scenario!(
            a_registration_is_echoed_and_an_unsafe_redirect_uri_is_rejected,
            "hosting:auth:as-router",
            "hosting:auth:as:register-echo",
            "hosting:auth:as:register-error-response",
            "hosting:auth:as:redirect-uri-scheme",
        )
        .modern()
        .over_http1(),
        scenario!(
            an_authorization_code_works_once_and_is_bound_to_its_verifier_and_redirect_uri,
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

async fn a_request_without_a_token_gets_401_with_the_metadata_url(env: ScenarioEnv) {
    let servers = ServerAndIssuer::new("read").await;
    let token = servers.token("read").await;

    for url in [
        servers.resource.clone(),
        format!("{}?access_token={token}", servers.resource),
    ] {
        let rejection = env.connect_to(&url).await;
        let rejection = match rejection {
            Ok(client) => client.call_tool("whoami", ()).await.map(drop),
            Err(error) => Err(error),
        };

        let Err(Error::Unauthorized { challenges, .. }) = rejection else {
            panic!("expected `Unauthorized`, got {rejection:?}");
        };
        assert_eq!(challenges[0].error(), None);
        assert_eq!(challenges[0].scope(), Some("read"));
        let document = challenges[0].resource_metadata().unwrap();
        let document = fetch(document).await.body;
        assert_eq!(document["resource"], *servers.resource);
        assert_eq!(document["authorization_servers"], json!([servers.issuer]));
    }
}

async fn a_handler_receives_the_principal_of_the_token(env: ScenarioEnv) {
    let servers = ServerAndIssuer::new("read").await;

    let client = servers
        .connect(&env, &servers.token("read").await)
        .await
        .unwrap();
    let name = client.call_tool("whoami", ()).await.unwrap().text();

    assert_eq!(name, format!("{} ada: read", servers.issuer));
    client.close().await.unwrap();
}

async fn an_unknown_foreign_or_expired_token_is_rejected(env: ScenarioEnv) {
    let (servers, other) = (
        ServerAndIssuer::new("read").await,
        ServerAndIssuer::new("read").await,
    );
    let expired = ServerAndIssuer::with_lifetime("read", Duration::ZERO).await;

    for (servers, token) in [
        (&servers, "none".to_owned()),
        (&servers, other.token("read").await),
        (&expired, expired.token("read").await),
        (&servers, servers.token_for_another_resource("read").await),
    ] {
        let rejection = servers.rejection(&env, &token, "whoami").await;

        let Error::Unauthorized { challenges, .. } = rejection else {
            panic!("expected `Unauthorized`, got {rejection:?}");
        };
        assert_eq!(challenges[0].error(), Some("invalid_token"));
        assert_eq!(challenges[0].scope(), Some("read"));
    }
}

async fn a_token_with_insufficient_scope_gets_a_challenge_with_the_required_scope(
    env: ScenarioEnv,
) {
    let servers = ServerAndIssuer::new("read").await;

    for (scope, tool, wanted) in [("read", "write", "read write"), ("write", "whoami", "read")] {
        let token = servers.token(scope).await;
        let rejection = servers.rejection(&env, &token, tool).await;

        let Error::Unauthorized { challenges, .. } = rejection else {
            panic!("expected `Unauthorized`, got {rejection:?}");
        };
        assert_eq!(challenges[0].error(), Some("insufficient_scope"));
        assert_eq!(challenges[0].scope(), Some(wanted));
    }
}

async fn a_registration_is_echoed_and_an_unsafe_redirect_uri_is_rejected(_: ScenarioEnv) {
    let servers = ServerAndIssuer::new("read").await;
    let metadata = fetch(&format!(
        "{}/.well-known/oauth-authorization-server",
        servers.issuer
    ))
    .await;
    let registration = metadata.body["registration_endpoint"].as_str().unwrap();
    let about = json!({"client_name": "editor", "redirect_uris": [CALLBACK], "software_id": "s"});

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
        let rejection = post_json(registration, &json!({"redirect_uris": [redirect]})).await;

        assert_eq!(rejection.status, 400, "{redirect}");
        assert_eq!(
            rejection.body["error"], "invalid_redirect_uri",
            "{redirect}"
        );
    }
}

async fn an_authorization_code_works_once_and_is_bound_to_its_verifier_and_redirect_uri(
    _: ScenarioEnv,
) {
    let servers = ServerAndIssuer::new("read").await;
    let client = servers.register().await;

    let without = servers.authorize(&client, "read", "").await;
    let code = servers.code(&client, "read").await;
    let good = servers.redeem(&client, &code, VERIFIER, CALLBACK).await;
    let code = servers.code(&client, "read").await;
    let wrong = servers
        .redeem(&client, &code, "another verifier", CALLBACK)
        .await;
    let again = servers.redeem(&client, &code, VERIFIER, CALLBACK).await;
    let code = servers.code(&client, "read").await;
    let elsewhere = format!("{CALLBACK}/elsewhere");
    let elsewhere = servers.redeem(&client, &code, VERIFIER, &elsewhere).await;

    assert!(without.contains("error=invalid_request"), "{without}");
    assert_eq!(good.status, 200);
    assert_eq!(good.cache_control, "no-store");
    for rejection in [wrong, again, elsewhere] {
        assert_eq!(rejection.body["error"], "invalid_grant");
    }
}

/// An MCP server that requires tokens, and the authorization server that issues them.
pub(crate) struct ServerAndIssuer {
    pub(crate) issuer: String,
    pub(crate) resource: String,
    _serving: tokio::task::JoinSet<()>,
}

impl ServerAndIssuer {
    pub(crate) async fn new(scope: &'static str) -> Self {
        Self::with_lifetime(scope, Duration::from_secs(60)).await
    }

    async fn with_lifetime(scope: &'static str, lifetime: Duration) -> Self {
        let issuing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", issuing.local_addr().unwrap());
        let service = notes_server().http();
        let service = service.legacy(bowline::http::legacy::Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let resource = format!("http://{}/mcp", bound.local_addr());
        let authorization = AuthorizationServer::new(issuer.clone())
            .resource(&resource, &["read", "write"])
            .resource(ANOTHER, &["read"])
            .token_lifetime(lifetime);
        let keys = JwtVerifier::discover(issuer.clone()).unwrap();
        let guard = ResourceServer::new(&resource, issuer.clone(), keys).unwrap();
        let guard = guard.scopes([scope]).leeway(Duration::ZERO);
        let mut serving = tokio::task::JoinSet::new();
        let router = authorization.router();
        serving.spawn(async move { axum::serve(issuing, router).await.unwrap() });
        serving.spawn(async move { bound.layer(guard).serve().await.unwrap() });
        Self {
            issuer,
            resource,
            _serving: serving,
        }
    }

    async fn connect(&self, env: &ScenarioEnv, token: &str) -> bowline::Result<Client> {
        env.connect_to(&self.resource).bearer(token).await
    }

    /// The error with which a call is rejected.
    async fn rejection(&self, env: &ScenarioEnv, token: &str, tool: &'static str) -> Error {
        match self.connect(env, token).await {
            Ok(client) => client.call_tool(tool, ()).await.unwrap_err(),
            Err(error) => error,
        }
    }

    async fn register(&self) -> String {
        let about = json!({"redirect_uris": [CALLBACK]});
        let registered = post_json(&format!("{}/register", self.issuer), &about).await;
        registered.body["client_id"].as_str().unwrap().to_owned()
    }

    /// The URL to which a user is redirected after authorizing the client.
    async fn authorize(&self, client: &str, scope: &str, challenge: &str) -> String {
        self.authorize_for(&self.resource, client, scope, challenge)
            .await
    }

    async fn authorize_for(
        &self,
        resource: &str,
        client: &str,
        scope: &str,
        challenge: &str,
    ) -> String {
        let url = format!(
            "{}/authorize?response_type=code&client_id={client}&redirect_uri={CALLBACK}&scope={scope}\
             &code_challenge={challenge}&code_challenge_method=S256&resource={resource}",
            self.issuer
        );
        SimulatedUser::new("ada").allow(&url).await.unwrap()
    }

    async fn code(&self, client: &str, scope: &str) -> String {
        code_in(&self.authorize(client, scope, CHALLENGE).await)
    }

    async fn redeem(
        &self,
        client: &str,
        code: &str,
        verifier: &str,
        redirect: &str,
    ) -> JsonResponse {
        let form = format!(
            "grant_type=authorization_code&client_id={client}&code={code}&code_verifier={verifier}\
             &redirect_uri={redirect}"
        );
        let media = "application/x-www-form-urlencoded";
        post(&format!("{}/token", self.issuer), media, form).await
    }

    /// A token with this scope, for the user `ada`.
    async fn token(&self, scope: &str) -> String {
        self.token_for(&self.resource, scope).await
    }

    async fn token_for_another_resource(&self, scope: &str) -> String {
        self.token_for(ANOTHER, scope).await
    }

    async fn token_for(&self, resource: &str, scope: &str) -> String {
        let client = self.register().await;
        let callback = self
            .authorize_for(resource, &client, scope, CHALLENGE)
            .await;
        let tokens = self
            .redeem(&client, &code_in(&callback), VERIFIER, CALLBACK)
            .await;
        tokens.body["access_token"].as_str().unwrap().to_owned()
    }
}

fn notes_server() -> Server {
    let whoami = Tool::new("whoami", async |principal: Principal| {
        let scopes: Vec<_> = principal.scopes().collect();
        format!(
            "{}: {}",
            principal.name().unwrap_or("anonymous"),
            scopes.join(" ")
        )
    });
    let write = Tool::new("write", async || "written").scopes(["write"]);
    Server::new("notes", "1.0.0").tool(whoami).tool(write)
}

fn code_in(callback: &str) -> String {
    let code = callback
        .split("code=")
        .nth(1)
        .expect("no code in the redirect");
    code.split('&').next().unwrap_or_default().to_owned()
}

/// A response with a JSON body, or none.
struct JsonResponse {
    status: u16,
    cache_control: String,
    body: Value,
}

async fn fetch(url: &str) -> JsonResponse {
    let mut request = http::Request::new(RequestBody::from(bytes::Bytes::new()));
    *request.uri_mut() = url.parse().unwrap();
    send(request).await
}

async fn post_json(url: &str, body: &Value) -> JsonResponse {
    post(url, "application/json", body.to_string()).await
}

async fn post(url: &str, media: &str, body: String) -> JsonResponse {
    let mut request = http::Request::new(RequestBody::from(bytes::Bytes::from(body)));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = url.parse().unwrap();
    request
        .headers_mut()
        .insert("content-type", media.parse().unwrap());
    send(request).await
}

async fn send(request: http::Request<RequestBody>) -> JsonResponse {
    let response = HyperClient::plain().send(request).await.unwrap();
    let cache_control = response.headers().get("cache-control");
    let cache_control = cache_control.map_or("", |value| value.to_str().unwrap());
    JsonResponse {
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
