//! Values found by their type: what a server gives all its handlers, and what a transport or a layer adds
//! to one request.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Values of different types, at most one of each. Clones share the values.
///
/// # Examples
///
/// ```
/// use bowline::exchange::Extensions;
///
/// let mut extensions = Extensions::default();
/// extensions.insert(String::from("eu-west"));
/// assert_eq!(extensions.get::<String>().map(String::as_str), Some("eu-west"));
/// assert_eq!(extensions.get::<u8>(), None);
/// ```
#[derive(Clone, Default)]
pub struct Extensions {
    values: BTreeMap<TypeId, Extension>,
}

#[derive(Clone)]
struct Extension {
    name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl Extensions {
    /// No values.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            values: BTreeMap::new(),
        }
    }

    /// Adds a value in the place of an earlier one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        let extension = Extension {
            name: type_name::<T>(),
            value: Arc::new(value),
        };
        self.values.insert(TypeId::of::<T>(), extension);
    }

    /// The value of this type.
    #[must_use]
    pub fn get<T: 'static>(&self) -> Option<&T> {
        self.values
            .get(&TypeId::of::<T>())
            .and_then(|extension| extension.value.downcast_ref())
    }

    /// Whether there is a value of the type with this id.
    #[must_use]
    pub fn contains(&self, id: TypeId) -> bool {
        self.values.contains_key(&id)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values may be secrets, and need not be printable.
        f.debug_set()
            .entries(self.values.values().map(|extension| extension.name))
            .finish()
    }
}
