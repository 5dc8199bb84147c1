//! Reads certificates and private keys in PEM. Errors name what is wrong, and contain nothing of the input.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Error, Result};

/// Reads all certificates of `pem`; `what` names it in errors.
///
/// # Errors
///
/// [`Error::Misuse`] if `pem` contains no certificate, or a malformed one.
pub(crate) fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = read.map_err(|error| malformed(what, &error))?;
    if certificates.is_empty() {
        let hint = match contains(pem, "PRIVATE KEY-----") {
            true => "; it contains a private key, are the arguments swapped?",
            false => "",
        };
        return Err(Error::misuse(format!(
            "{what} contains no PEM section `CERTIFICATE`{hint}"
        )));
    }
    Ok(certificates)
}

/// Reads the first private key of `pem`; `what` names it in errors.
///
/// # Errors
///
/// [`Error::Misuse`] if `pem` contains no private key, or a malformed or encrypted one.
pub(crate) fn private_key(what: &str, pem: &[u8]) -> Result<PrivateKeyDer<'static>> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            let hint = if contains(pem, "ENCRYPTED PRIVATE KEY-----") {
                "; it is encrypted, decrypt it first, for example with `openssl pkey`"
            } else if contains(pem, "CERTIFICATE-----") {
                "; it contains a certificate, are the arguments swapped?"
            } else {
                ""
            };
            Err(Error::misuse(format!(
                "{what} contains no PEM section `PRIVATE KEY`{hint}"
            )))
        }
        Err(error) => Err(malformed(what, &error)),
    }
}

/// Returns the error of malformed PEM. The text of `error` may quote the input, which may be secret.
fn malformed(what: &str, error: &pem::Error) -> Error {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no `END` line",
        pem::Error::IllegalSectionStart { .. } => "a `BEGIN` line is malformed",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "it cannot be parsed",
    };
    Error::misuse(format!("{what} is not valid PEM: {why}"))
}

fn contains(pem: &[u8], text: &str) -> bool {
    memchr::memmem::find(pem, text.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";

    #[test]
    fn sections_of_the_other_kind_are_skipped() {
        let both = format!("{KEY}{CERTIFICATE}{CERTIFICATE}");

        let certificates = certificates("the certificate", both.as_bytes()).unwrap();
        assert_eq!(certificates.len(), 2);
        assert!(private_key("the key", both.as_bytes()).is_ok());
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let certificate = |pem: &str| {
            let error = certificates("the certificate", pem.as_bytes()).unwrap_err();
            error.to_string()
        };
        let key = |pem: &str| {
            let error = private_key("the key", pem.as_bytes()).unwrap_err();
            error.to_string()
        };
        let encrypted = KEY.replace("PRIVATE", "ENCRYPTED PRIVATE");

        for (error, text) in [
            (certificate(""), "contains no PEM section `CERTIFICATE`"),
            (certificate(KEY), "are the arguments swapped?"),
            (certificate(&CERTIFICATE[..40]), "no `END` line"),
            (certificate(&CERTIFICATE.replace("AAAA", "?")), "not base64"),
            (key(""), "contains no PEM section `PRIVATE KEY`"),
            (key(CERTIFICATE), "are the arguments swapped?"),
            (key(&encrypted), "decrypt it first"),
            (key(&KEY.replace("c2V", "?2V")), "not base64"),
        ] {
            assert!(error.contains(text), "{error}");
            assert!(!error.contains("2Vj"), "{error}");
        }
    }
}
