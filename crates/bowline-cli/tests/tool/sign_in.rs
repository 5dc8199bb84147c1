//! A server that requires OAuth tokens: the sign-in in a browser, and the tokens that are kept.

use bowline::exchange::Principal;
use bowline::prelude::*;
use bowline_auth::server::{JwtVerifier, ResourceServer};
use bowline_example_authorization_server::{AuthorizationServer, SimulatedUser};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Program, TempDir, in_time, run};

/// Returns the user.
#[tool]
async fn whoami(caller: Principal) -> String {
    caller.name().unwrap_or("anonymous").to_owned()
}

/// Starts a server that requires tokens, and returns its URL.
async fn guarded_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::new("notes", "1.0.0").tool(whoami).http();
    let bound = server.bind("127.0.0.1:0").await.unwrap();
    let resource = format!("http://{}/mcp", bound.local_addr());
    let verifier = JwtVerifier::discover(&issuer).unwrap();
    let guard = ResourceServer::new(&resource, &issuer, verifier).unwrap();
    let authorization = AuthorizationServer::new(&issuer).resource(&resource, &["notes:read"]);
    tokio::spawn(bound.layer(guard.scopes(["notes:read"])).serve());
    tokio::spawn(async move { axum::serve(listener, authorization.router()).await });
    resource
}

/// Does what a browser does with the address that is printed.
async fn sign_in(url: &str) {
    let redirect = SimulatedUser::new("ada").allow(url).await.unwrap();
    let rest = redirect.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let mut browser = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    browser.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    browser.read_to_string(&mut page).await.unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
}

/// Signs in at the address that the program prints.
async fn sign_in_at(program: &mut Program) {
    let mut stderr = BufReader::new(program.take_stderr()).lines();
    let address = loop {
        let line = stderr.next_line().await.unwrap().expect("an address");
        if line.starts_with("http://") {
            break line;
        }
    };
    sign_in(&address).await;
}

#[tokio::test]
async fn the_first_call_signs_in_and_the_next_one_uses_the_token() {
    in_time(async {
        let (url, folder) = (guarded_server().await, TempDir::new("tokens"));
        let tokens = folder.0.to_str().unwrap();
        let words = ["call", &url, "whoami", "--token-dir", tokens];

        let mut first = Program::start(&words);
        sign_in_at(&mut first).await;
        let name = first.line().await;
        let second = run(&words).await;
        let refused = run(&["call", &url, "whoami", "--no-oauth"]).await;

        assert!(name.ends_with(" ada"), "{name}");
        assert_eq!(
            (second.code, second.stdout.trim_end()),
            (Some(0), name.as_str()),
            "{second:?}"
        );
        assert_eq!(refused.code, Some(3), "{refused:?}");
    })
    .await;
}

#[tokio::test]
async fn the_doctor_signs_in_if_asked_to_and_uses_a_kept_token() {
    in_time(async {
        let (url, folder) = (guarded_server().await, TempDir::new("doctor-tokens"));
        let tokens = folder.0.to_str().unwrap();
        let words = ["doctor", &url, "--json", "--token-dir", tokens];

        let outside = run(&words).await.json();
        let mut first = Program::start(&[&words[..], &["--sign-in"]].concat());
        sign_in_at(&mut first).await;
        let inside: Value = serde_json::from_str(&first.line().await).unwrap();
        let second = run(&words).await.json();

        let fact = |report: &Value, name: &str| {
            let facts = report["facts"].as_array().unwrap().iter();
            let value = facts.clone().find(|it| it["name"] == name);
            value.map(|it| it["value"].as_str().unwrap().to_owned())
        };
        assert_eq!(fact(&outside, "tools"), None, "{outside}");
        let unchecked = outside["unchecked"].to_string();
        assert!(unchecked.contains("--sign-in"), "{unchecked}");
        for report in [&inside, &second] {
            assert_eq!(fact(report, "tools").as_deref(), Some("1"), "{report}");
            let sign_in = fact(report, "sign-in").unwrap();
            assert!(sign_in.ends_with("with a kept token"), "{sign_in}");
            let versions = fact(report, "versions").unwrap();
            assert!(versions.starts_with("2026-07-28"), "{versions}");
        }
    })
    .await;
}
