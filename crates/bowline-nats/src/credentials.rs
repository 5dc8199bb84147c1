//! Moves the credentials of a URL to the options of the NATS client.

use std::io;

use async_nats::{ConnectOptions, ServerAddr};

/// Returns the address of the server without its credentials, and the options with them: `user:password@`, or `token@`.
///
/// The NATS client does not use the credentials of a URL, and writes the URL to the log.
///
/// # Errors
///
/// If it is not a URL.
pub(crate) fn move_credentials(
    url: &str,
    options: ConnectOptions,
) -> io::Result<(ServerAddr, ConnectOptions)> {
    let mut url = url.parse::<ServerAddr>()?.into_inner();
    let (user, password) = (decoded(url.username()), url.password().map(decoded));
    let options = match password {
        Some(password) => options.user_and_password(user, password),
        None if user.is_empty() => options,
        None => options.token(user),
    };
    // These fail for URLs without a host, which have no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Ok((ServerAddr::from_url(url)?, options))
}

/// Decodes `%2F` and the like.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%');
        let digits = escaped.filter(|it| it.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|it| std::str::from_utf8(it).ok());
        match digits.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn the_address_has_no_credentials() {
        for url in ["nats://ada:KEY@127.0.0.1:4222", "nats://KEY@127.0.0.1"] {
            let (address, _) = move_credentials(url, ConnectOptions::new()).unwrap();

            assert!(!format!("{address:?}").contains("KEY"), "{address:?}");
            assert_eq!(address.host(), "127.0.0.1");
        }
        assert!(
            move_credentials("nats://", ConnectOptions::new()).is_ok_and(|it| it.0.host() == "")
        );
        assert!(move_credentials("http://x", ConnectOptions::new()).is_err());
    }

    #[test]
    fn escaped_characters_are_decoded() {
        assert_eq!(decoded("a%2Fb%40c"), "a/b@c");
        assert_eq!(decoded("50%"), "50%");
        assert_eq!(decoded("%zz%+1"), "%zz%+1");
    }

    #[tokio::test]
    async fn the_credentials_of_the_url_reach_the_server() {
        for (user_info, expected) in [
            ("ada:p%2Fw", r#""user":"ada","pass":"p/w""#),
            ("t0ken", r#""auth_token":"t0ken""#),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let url = format!("nats://{user_info}@127.0.0.1:{port}");
            let connecting = tokio::spawn(async move {
                let (address, options) = move_credentials(&url, ConnectOptions::new()).unwrap();
                options.connect(address).await
            });

            let (mut stream, _) = listener.accept().await.unwrap();
            let info = r#"{"server_id":"s","server_name":"s","version":"2.11.0","go":"","host":"h","port":1,"proto":1,"max_payload":1048576}"#;
            stream
                .write_all(format!("INFO {info}\r\n").as_bytes())
                .await
                .unwrap();
            let mut sent = String::new();
            BufReader::new(stream).read_line(&mut sent).await.unwrap();

            assert!(sent.contains(expected), "{sent}");
            connecting.abort();
        }
    }
}
