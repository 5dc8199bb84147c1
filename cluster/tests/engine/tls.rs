//! Connections with TLS: with the authority of the server, with another one, and without TLS.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bowline::cluster::{Cluster, GroupEvent, GroupId};
use bowline_nats::{Nats, async_nats};
use bowline_postgres::Postgres;
use bowline_redis::Redis;
use cluster_tests::Engine;
use tokio::time::{Instant, timeout};

use crate::tls_server::TlsServer;

type Connected = Result<Cluster, Box<dyn Error>>;

/// Connects to a URL of the engine, trusting only this authority, or those of the system.
async fn connect(engine: Engine, url: &str, authority: Option<&Path>) -> Connected {
    let pem = authority.map(|file| fs::read(file).unwrap());
    Ok(match engine {
        Engine::Postgres => {
            let mut options = bowline_postgres::ConnectOptions::new();
            if let Some(pem) = pem {
                options = options.root_certificates(pem);
            }
            Postgres::connect_with(url, options, KEY).await?.into()
        }
        Engine::Redis => {
            let mut options = bowline_redis::ConnectOptions::new();
            if let Some(pem) = pem {
                options = options.root_certificates(pem);
            }
            Redis::connect_with(url, options, KEY).await?.into()
        }
        _ => {
            let mut options = async_nats::ConnectOptions::new();
            if let Some(file) = authority {
                options = options.add_root_certificates(file.to_owned());
            }
            Nats::connect_with(url, options, KEY).await?.into()
        }
    })
}

/// Returns the causes of a failure, which must come in time: connecting has a limit of 5 s.
async fn connect_error(engine: Engine, url: &str, authority: Option<&Path>) -> String {
    let begun = Instant::now();
    let error = connect(engine, url, authority).await.unwrap_err();
    // Connecting may have begun late on a busy machine.
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn url_with_tls(engine: Engine, host: &str, port: u16) -> String {
    match engine {
        Engine::Postgres => format!("postgres://bowline@{host}:{port}/postgres?sslmode=require"),
        Engine::Redis => format!("rediss://{host}:{port}"),
        _ => format!("tls://{host}:{port}"),
    }
}

fn url_without_tls(engine: Engine, port: u16) -> String {
    match engine {
        Engine::Postgres => {
            format!("postgres://bowline@localhost:{port}/postgres?sslmode=disable")
        }
        Engine::Redis => format!("redis://localhost:{port}"),
        _ => format!("nats://localhost:{port}"),
    }
}

async fn replicas_reach_each_other_and_share_marks(engine: Engine, server: &TlsServer) {
    let url = url_with_tls(engine, "localhost", server.port);
    let connect = || connect(engine, &url, Some(&server.authority));
    let (first, second) = (connect().await.unwrap(), connect().await.unwrap());

    let _service = second.serve("echo", |asked| Box::pin(async move { asked.message }));
    let group = GroupId::new("tls", engine.name());
    let mut received = second.join(&group).await.unwrap();
    let answer = first.ask("echo", second.replica(), "hello".into(), LIMIT);
    assert_eq!(answer.await.unwrap(), "hello");
    first.tell(&group, "changed".into());
    let event = timeout(LIMIT, received.next()).await.unwrap();
    assert!(matches!(event, Some(GroupEvent::Message { body, .. }) if body == "changed"));
    first.marks().set(b"tls", b"1", LIMIT).await.unwrap();
    assert_eq!(second.marks().read(b"tls").await.unwrap().unwrap(), "1");
}

async fn an_unknown_authority_is_refused_with_what_to_do(engine: Engine, server: &TlsServer) {
    let url = url_with_tls(engine, "localhost", server.port);
    // The second: the certificates of the system.
    for authority in [Some(&*server.other_authority), None] {
        let refused = connect_error(engine, &url, authority).await;

        assert!(
            refused.contains("not signed by a trusted authority; add its authority with"),
            "{refused}"
        );
        assert!(refused.contains("root_certificates"), "{refused}");
    }
}

async fn a_certificate_of_another_name_is_refused(engine: Engine, server: &TlsServer) {
    let url = url_with_tls(engine, "127.0.0.1", server.port);

    let refused = connect_error(engine, &url, Some(&server.authority)).await;

    assert!(refused.contains("not valid for name"), "{refused}");
}

/// As when a URL with TLS is given to a server without.
async fn a_server_without_tls_is_refused(engine: Engine) {
    let variable = format!("BOWLINE_{}_URL", engine.name().to_uppercase());
    let url = std::env::var(variable).expect("run by `cargo xtask cluster`");
    let port = url.split(':').next_back().unwrap().split('/').next();
    let url = url_with_tls(engine, "localhost", port.unwrap().parse().unwrap());

    connect_error(engine, &url, None).await;
}

mod postgres {
    use super::*;

    #[tokio::test]
    async fn connections_are_encrypted_and_the_server_is_verified() {
        let server = TlsServer::start(Engine::Postgres).await;
        replicas_reach_each_other_and_share_marks(Engine::Postgres, &server).await;
        an_unknown_authority_is_refused_with_what_to_do(Engine::Postgres, &server).await;
        a_certificate_of_another_name_is_refused(Engine::Postgres, &server).await;

        let url = url_without_tls(Engine::Postgres, server.port);
        let refused = connect_error(Engine::Postgres, &url, None).await;
        assert!(refused.contains("set `sslmode=require`"), "{refused}");

        // The authority requires TLS, also if the URL does not.
        connect(Engine::Postgres, &url, Some(&server.authority))
            .await
            .unwrap();
        a_server_without_tls_is_refused(Engine::Postgres).await;
    }
}

mod redis {
    use super::*;

    #[tokio::test]
    async fn connections_are_encrypted_and_the_server_is_verified() {
        let server = TlsServer::start(Engine::Redis).await;
        replicas_reach_each_other_and_share_marks(Engine::Redis, &server).await;
        an_unknown_authority_is_refused_with_what_to_do(Engine::Redis, &server).await;
        a_certificate_of_another_name_is_refused(Engine::Redis, &server).await;

        let url = url_without_tls(Engine::Redis, server.port);
        let refused = connect_error(Engine::Redis, &url, None).await;
        assert!(refused.contains("use a URL with `rediss://`"), "{refused}");

        // An authority is not ignored.
        let refused = connect_error(Engine::Redis, &url, Some(&server.authority)).await;
        assert!(refused.contains("`rediss://`"), "{refused}");
        a_server_without_tls_is_refused(Engine::Redis).await;
    }
}

mod nats {
    use super::*;

    #[tokio::test]
    async fn connections_are_encrypted_and_the_server_is_verified() {
        let server = TlsServer::start(Engine::Nats).await;
        replicas_reach_each_other_and_share_marks(Engine::Nats, &server).await;
        an_unknown_authority_is_refused_with_what_to_do(Engine::Nats, &server).await;
        a_certificate_of_another_name_is_refused(Engine::Nats, &server).await;

        // The server says that it requires TLS, and the client uses it.
        let url = url_without_tls(Engine::Nats, server.port);
        let refused = connect_error(Engine::Nats, &url, None).await;
        assert!(refused.contains("add_root_certificates"), "{refused}");
        connect(Engine::Nats, &url, Some(&server.authority))
            .await
            .unwrap();
        a_server_without_tls_is_refused(Engine::Nats).await;
    }
}

const KEY: [u8; 32] = [7; 32];
const LIMIT: Duration = Duration::from_secs(20);
