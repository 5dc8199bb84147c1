//! The client's own token: nowhere by default, and with `passThrough` at that server, for its principal.

use bowline::prelude::*;
use bowline_bridge::{Bridge, Target};
use serde_json::json;

use crate::world::*;

#[tokio::test]
async fn without_pass_through_the_token_of_a_client_stays_at_the_front() {
    for (front, back) in pairs() {
        let (logs, _guard) = Logs::capture();
        let (url, heads) = start_upstream(back).await;
        let front_url = serve_guarded(&bridge_to(&url, json!({}))).await;
        let client = connect(&front_url, front, &Presented::new("ada.editor.use.1")).await;

        let seen = whoami(&client).await;
        let error = client.call_tool("missing", ()).await.unwrap_err();

        assert_eq!(seen, "nothing", "{front} → {back}");
        let heads = heads.all();
        assert!(heads.len() > 1, "{heads:?}");
        assert!(heads.iter().all(|head| !head.text.contains("ada.editor")));
        assert!(!format!("{error:?} {error}").contains("ada.editor"));
        assert!(!logs.text().is_empty());
        assert!(!logs.text().contains("ada.editor"), "{}", logs.text());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_environment_and_input_of_a_child_do_not_contain_the_token() {
    let path = std::env::temp_dir().join(format!("bowline-credentials-{}", std::process::id()));
    let written = path.clone();
    let target = Target::command("child", move || {
        let script = r#"env > "$0"; head -n 1 >> "$0"; exit 3"#;
        bowline::wire::Command::new("sh")
            .args(["-c", script])
            .args([written.as_os_str()])
    });
    let url = serve_guarded(&Bridge::new(target)).await;

    let token = Presented::new("ada.editor.use.1");
    let failed = Client::connect(&url).authorizer(token);
    let failed = failed.protocol_version("2026-07-28").await;
    let failed = match failed {
        Ok(client) => client.list_tools().await.unwrap_err(),
        Err(error) => error,
    };

    let seen = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(seen.contains("PATH=") && seen.contains("jsonrpc"), "{seen}");
    assert!(!seen.contains("ada.editor"), "{seen}");
    assert!(!format!("{failed:?}").contains("ada.editor"), "{failed:?}");
}

#[tokio::test]
async fn with_pass_through_each_principal_is_known_by_its_own_token() {
    for (front, back) in pairs() {
        let (logs, _guard) = Logs::capture();
        let (url, heads) = start_upstream(back).await;
        let bridge = bridge_to(&url, json!({"passThrough": true}));
        let front_url = serve_guarded(&bridge).await;
        let ada = connect(&front_url, front, &Presented::new("ada.editor.use.1")).await;
        let bob = connect(&front_url, front, &Presented::new("bob.editor.use.1")).await;

        for _ in 0..3 {
            let (of_ada, of_bob) = tokio::join!(whoami(&ada), whoami(&bob));

            assert_eq!(of_ada, "Bearer ada.editor.use.1", "{front} → {back}");
            assert_eq!(of_bob, "Bearer bob.editor.use.1", "{front} → {back}");
        }
        let heads = heads.all();
        assert!(heads.iter().all(|head| head.authorization.is_some()));
        assert!(!logs.text().contains(".editor.use"), "{}", logs.text());
        assert!(!format!("{bridge:?}").contains(".editor.use"));
    }
}

#[tokio::test]
async fn a_connection_with_another_token_takes_the_place_of_an_idle_one_of_the_same_principal() {
    let (url, _heads) = start_upstream("2025-11-25").await;
    let bridge = Bridge::builder(target_of(&url, json!({"passThrough": true})));
    let bridge = bridge.max_principal_connections(1).build();
    let front_url = serve_guarded(&bridge).await;

    for token in ["ada.editor.use.1", "ada.shell.use.1"] {
        let client = connect(&front_url, "2026-07-28", &Presented::new(token)).await;

        assert_eq!(whoami(&client).await, format!("Bearer {token}"));
    }
}

#[tokio::test]
async fn a_renewed_token_is_used_from_the_next_request_on() {
    for (front, back) in pairs() {
        let (url, heads) = start_upstream(back).await;
        let front_url = serve_guarded(&bridge_to(&url, json!({"passThrough": true}))).await;
        let token = Presented::new("ada.editor.use.1");
        let client = connect(&front_url, front, &token).await;
        whoami(&client).await;
        let before = heads.all().len();

        token.set("ada.editor.use.2");
        let seen = whoami(&client).await;

        assert_eq!(seen, "Bearer ada.editor.use.2", "{front} → {back}");
        let after = heads.all().split_off(before);
        let is_new = |head: &Head| head.authorization.as_deref() == Some(&*seen);
        assert!(after.iter().all(is_new), "{after:?}");
    }
}

#[tokio::test]
async fn a_client_does_not_get_the_rights_that_its_user_gave_to_another() {
    for (front, back) in pairs() {
        let (url, _heads) = start_upstream(back).await;
        let front_url = serve_guarded(&bridge_to(&url, json!({"passThrough": true}))).await;
        let tokens = [
            "ada.editor.use.1",
            "ada.shell.use.1",
            "ada.editor.use+write.1",
        ];
        let mut clients = Vec::new();
        for token in tokens {
            clients.push((
                token,
                connect(&front_url, front, &Presented::new(token)).await,
            ));
        }

        for (token, client) in clients.iter().chain(&clients) {
            let seen = whoami(client).await;
            assert_eq!(seen, format!("Bearer {token}"), "{front} → {back}");
        }
    }
}

#[tokio::test]
async fn a_token_that_the_front_has_not_verified_is_not_passed_through() {
    for front in VERSIONS {
        let (url, heads) = start_upstream("2026-07-28").await;
        let bridge = bridge_to(&url, json!({"passThrough": true}));
        let bound = bridge.http().bind("127.0.0.1:0").await.unwrap();
        let front_url = format!("http://{}/mcp", bound.local_addr());
        tokio::spawn(async move { bound.serve().await });
        let token = Presented::new("ada.editor.use.1");

        let client = Client::connect(&front_url).protocol_version(front);
        let error = match client.authorizer(token).await {
            Ok(client) => client.call_tool("whoami", ()).await.unwrap_err(),
            Err(error) => error,
        };

        let error = error.to_string();
        let expected = "upstream `up` is called with the access token of the client";
        assert!(error.contains(expected), "{error}");
        assert_eq!(heads.all(), []);
    }
}

fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    VERSIONS
        .into_iter()
        .flat_map(|front| VERSIONS.map(|back| (front, back)))
}
