//! The doctor names each planted fault, and no other.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::http_server::{Answer, Response, legacy, modern, serve, tool};
use super::{assert_faults, doctor, doctor_with, shell_server, tls_server};

#[test]
fn a_wrong_content_type() {
    let url = serve(|request| match modern(request) {
        Answer::Full(response) if !response.body.is_empty() => {
            Answer::Full(response.header("content-type", "text/plain"))
        }
        other => other,
    });

    assert_faults(&doctor(&[&url]), &["wrong-content-type"]);
}

#[test]
fn a_session_that_is_lost_between_requests() {
    let requests = AtomicU64::new(0);
    let url = serve(move |request| {
        // Two replicas that share nothing, behind a load balancer.
        let is_other = request.header("mcp-session-id").is_some()
            && requests.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        match is_other {
            true => Answer::Full(Response::status(404)),
            false => legacy(request),
        }
    });

    assert_faults(&doctor(&[&url]), &["session-lost"]);
}

#[test]
fn a_cancel_that_is_ignored_over_stdio() {
    for version in [shell_server::modern, shell_server::legacy] {
        // The result comes when the server has read the cancel and answered the request after it.
        let script = version(
            r#"
            call() { called=$id; }
            cancelled() { ignored=$called; }
            late() { [ -z "$ignored" ] || { answer "$ignored" '{"resultType":"complete","content":[]}'; ignored=; }; }
            "#,
        );
        let script = script
            .replace("discover ;;", "discover; late ;;")
            .replace("answer \"$id\" '{}' ;;", "answer \"$id\" '{}'; late ;;");

        let examined = doctor(&["--cancel-tool", "slow", "--", "sh", "-c", &script]);

        assert_faults(&examined, &["cancel-ignored"]);
    }
}

#[test]
fn a_cancel_that_is_ignored_over_http() {
    let url = serve(|request| match request.rpc() {
        // The work goes on after the client is gone, and its result is written all the same.
        "tools/call" => Answer::AfterClose(Response::result(
            request,
            &json!({"resultType": "complete", "content": []}),
        )),
        _ => modern(request),
    });

    let examined = doctor(&["--cancel-tool", "echo", &url]);

    assert_faults(&examined, &["cancel-ignored"]);
}

#[test]
fn a_refusal_without_metadata() {
    let url = serve(|request| match request.method.as_str() {
        "POST" => Answer::Full(Response::status(401)),
        _ => Answer::Full(Response::status(404)),
    });

    assert_faults(&doctor(&[&url]), &["auth-no-metadata"]);
}

#[test]
fn a_duplicate_tool_on_another_page() {
    let url = serve(|request| match request.rpc() {
        "tools/list" => {
            let page = match request.message["params"]["cursor"].as_str() {
                None => {
                    json!({"resultType": "complete", "tools": [tool("a"), tool("b")], "nextCursor": "2"})
                }
                Some(_) => json!({"resultType": "complete", "tools": [tool("c"), tool("a")]}),
            };
            Answer::Full(Response::result(request, &page))
        }
        _ => modern(request),
    });

    let examined = doctor(&[&url]);

    assert_faults(&examined, &["duplicate-tool"]);
    assert_eq!(examined.fact("tools"), Some("4"));
}

#[test]
fn a_broken_schema() {
    let url = serve(|request| match request.rpc() {
        "tools/list" => {
            let mut broken = tool("a");
            broken["inputSchema"]["properties"]["text"]["type"] = json!("text");
            let page = json!({"resultType": "complete", "tools": [broken]});
            Answer::Full(Response::result(request, &page))
        }
        _ => modern(request),
    });

    assert_faults(&doctor(&[&url]), &["broken-schema"]);
}

#[test]
fn noise_on_stdout() {
    let script = shell_server::modern(r#"start() { echo "Starting server…"; }"#);

    let examined = doctor(&["--", "sh", "-c", &script]);

    assert_faults(&examined, &["stdout-noise"]);
    // The doctor starts the server once for each revision, and counts the lines of one start.
    let findings = examined.report["findings"].to_string();
    assert!(findings.contains("a line to stdout"), "{findings}");
}

#[test]
fn a_slow_start() {
    // The threshold is far below what the server takes, so that no clock of a busy machine matters.
    let script = shell_server::modern("start() { sleep 0.2; }");

    let examined = doctor(&["--slow-start", "50ms", "--", "sh", "-c", &script]);

    assert_faults(&examined, &["slow-start"]);
}

#[test]
fn a_server_at_a_url_that_was_not_up_for_the_first_request() {
    let requests = AtomicU64::new(0);
    let url = serve(
        move |request| match requests.fetch_add(1, Ordering::Relaxed) {
            // It is never answered, and the client gives up.
            0 => Answer::AfterClose(Response::status(503)),
            _ => modern(request),
        },
    );

    let examined = doctor(&["--connect-timeout", "200ms", &url]);

    assert_faults(&examined, &["slow-start"]);
}

#[test]
fn an_answer_of_the_wrong_era() {
    let url = serve(|request| match request.rpc() {
        "server/discover" => {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}});
            Answer::Full(Response::result(request, &result))
        }
        _ => legacy(request),
    });

    assert_faults(&doctor(&[&url]), &["wrong-era-answer"]);
}

#[test]
fn a_clock_that_is_wrong() {
    let url = serve(|request| match modern(request) {
        Answer::Full(response) => {
            Answer::Full(response.header("date", "Tue, 28 Jul 2026 00:00:00 GMT"))
        }
        other => other,
    });

    assert_faults(&doctor(&[&url]), &["clock-skew"]);
}

#[test]
fn a_certificate_for_another_name() {
    let server = tls_server::serve("other.example", modern);
    let url = format!("https://localhost:{}/mcp", server.port);

    let examined = doctor_with(
        &[&url],
        &[("SSL_CERT_FILE", server.authority.to_str().unwrap())],
    );

    assert_faults(&examined, &["tls-name"]);
    let what = examined.report["findings"][0]["what"].as_str().unwrap();
    assert!(what.contains("other.example"), "{what}");
}

#[test]
fn a_proxy_that_buffers_streams() {
    let url = serve(|request| match modern(request) {
        // Everything that the server sends comes with the end of the stream.
        Answer::Open(response) => Answer::AfterClose(response),
        full => full,
    });

    let examined = doctor(&["--stream-wait", "200ms", &url]);

    assert_faults(&examined, &["sse-buffered"]);
}

#[test]
fn a_token_that_has_expired_and_is_for_another_server() {
    let url = serve(|request| {
        let address = request.header("host").unwrap();
        let metadata = json!({"resource": format!("http://{address}/mcp"), "authorization_servers": [format!("http://{address}")]});
        let issuer = json!({
            "issuer": format!("http://{address}"),
            "authorization_endpoint": format!("http://{address}/authorize"),
            "token_endpoint": format!("http://{address}/token"),
            "registration_endpoint": format!("http://{address}/register"),
            "code_challenge_methods_supported": ["S256"],
        });
        Answer::Full(match request.path.as_str() {
            "/resource" => Response::json(200, &metadata),
            "/.well-known/oauth-authorization-server" => Response::json(200, &issuer),
            "/mcp" => Response::status(401).header(
                "www-authenticate",
                format!("Bearer error=\"invalid_token\", resource_metadata=\"http://{address}/resource\""),
            ),
            _ => Response::status(404),
        })
    });
    // {"exp":1,"aud":"https://other.example"}
    let token = "e30.eyJleHAiOjEsImF1ZCI6Imh0dHBzOi8vb3RoZXIuZXhhbXBsZSJ9.c2ln";

    let examined = doctor(&[&url, "--header", &format!("Authorization: Bearer {token}")]);

    assert_faults(
        &examined,
        &["token-audience", "token-expired", "token-refused"],
    );
}

#[test]
fn a_list_that_requires_a_token_without_metadata() {
    let url = serve(|request| match request.rpc() {
        "tools/list" => Answer::Full(Response::status(401)),
        _ => modern(request),
    });

    assert_faults(&doctor(&[&url]), &["auth-no-metadata"]);
}

#[test]
fn a_server_that_refuses_everything() {
    let url = serve(|_| Answer::Full(Response::status(403)));

    assert_faults(&doctor(&[&url]), &["forbidden"]);
}

#[test]
fn a_page_that_is_not_a_server() {
    let url = serve(|_| {
        let mut page = Response::status(200).header("content-type", "text/html");
        page.body = "<html>Welcome</html>".to_owned();
        Answer::Full(page)
    });
    let nowhere = serve(|_| Answer::Full(Response::status(404)));

    assert_faults(&doctor(&[&url]), &["no-era", "not-an-endpoint"]);
    assert_faults(&doctor(&[&nowhere]), &["no-era"]);
}

#[test]
fn a_url_that_redirects() {
    let url = serve(|request| match request.path.as_str() {
        "/mcp" => Answer::Full(Response::status(307).header("location", "/mcp/")),
        _ => modern(request),
    });

    assert_faults(&doctor(&[&url]), &["redirect"]);
}

#[test]
fn a_list_that_never_ends() {
    let url = serve(|request| match request.rpc() {
        "tools/list" => {
            let page =
                json!({"resultType": "complete", "tools": [tool("a")], "nextCursor": "again"});
            Answer::Full(Response::result(request, &page))
        }
        _ => modern(request),
    });

    assert_faults(&doctor(&[&url]), &["paging-loop"]);
}

#[test]
fn a_program_that_does_not_exist() {
    let examined = doctor(&["--", "bowline-no-such-program"]);

    assert_faults(&examined, &["cannot-start"]);
}

#[test]
fn a_program_that_ends_shows_what_it_printed() {
    let examined = doctor(&["--", "sh", "-c", "echo 'API_KEY is not set' >&2; exit 3"]);

    assert_faults(&examined, &["exited-early"]);
    let what = examined.report["findings"][0]["what"].as_str().unwrap();
    assert!(
        what.contains("code 3") && what.contains("API_KEY is not set"),
        "{what}"
    );
}

#[test]
fn a_port_where_nothing_listens() {
    // Bound, so that no other program gets the port, and not listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/mcp", socket.local_addr().unwrap());

    assert_faults(&doctor(&[&url]), &["connection-failed"]);
}

#[test]
fn the_endpoint_of_an_event_stream_on_another_origin() {
    let url = serve(|request| match request.method.as_str() {
        "GET" => {
            let mut endpoint = Response::events(&[]);
            endpoint.body = "event: endpoint\ndata: http://10.0.0.1:8080/messages\n\n".to_owned();
            Answer::Open(endpoint)
        }
        _ => Answer::Full(Response::status(405)),
    });

    let examined = doctor(&[&url]);

    assert_faults(&examined, &["sse-endpoint"]);
}
