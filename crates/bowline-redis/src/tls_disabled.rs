//! Without the feature `tls` there is no provider to install.

pub(crate) fn install_provider() {}
