//! [`Tasks::sqlite`].

use std::path::Path;

use super::Tasks;
use crate::store::{SqliteStore, StoreError};

impl Tasks {
    /// Creates the extension with tasks in an SQLite database, which is created if it does not exist. Several processes
    /// of one machine can use the same database; see [`SqliteStore`].
    ///
    /// # Errors
    ///
    /// As of [`SqliteStore::open`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use bowline::Server;
    /// use bowline_tasks::Tasks;
    ///
    /// let server = Server::new("documents", "1.0.0").extension(Tasks::sqlite("tasks.db")?);
    /// # Ok::<(), bowline_tasks::store::StoreError>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
    pub fn sqlite(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        SqliteStore::open(path).map(Self::new)
    }
}
