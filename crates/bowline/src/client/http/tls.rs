//! The certificates of a connection over `https`.

use crate::client::ClientBuilder;

/// TLS settings of a connection over `https`. Ignored if [`ClientBuilder::http_client`] is set.
impl ClientBuilder {
    /// Also trusts servers whose certificate is signed by one of these authorities, in PEM; in addition to those of the
    /// system. Connecting fails with [`Error::Misuse`](crate::Error::Misuse) if there is no certificate in it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let authority = std::fs::read("internal-ca.pem")?;
    /// let client = bowline::Client::connect("https://tools.internal/mcp").add_root_certificate(authority).await?;
    /// # Ok(()) }
    /// ```
    pub fn add_root_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        let added = self.http.connection.tls.add_root(pem.as_ref());
        self.http.record(added);
        self
    }

    /// Sends this certificate, followed by its intermediate certificates, to servers that require one, and proves its
    /// private key; both in PEM. Connecting fails with [`Error::Misuse`](crate::Error::Misuse) if they are missing or
    /// malformed, or do not belong together.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let (certificate, key) = (std::fs::read("client.pem")?, std::fs::read("client-key.pem")?);
    /// let client = bowline::Client::connect("https://tools.internal/mcp").client_certificate(certificate, key).await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "identity")]
    pub fn client_certificate(
        mut self,
        certificate_chain: impl AsRef<[u8]>,
        private_key: impl AsRef<[u8]>,
    ) -> Self {
        let tls = &mut self.http.connection.tls;
        let set = tls.set_identity(certificate_chain.as_ref(), private_key.as_ref());
        self.http.record(set);
        self
    }
}
