//! TLS with ring.

/// Installs ring as the provider of `rustls`, unless the application has installed one: the Redis client takes the
/// installed one, and fails without.
pub(crate) fn install_provider() {
    // Fails if there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
