//! [`Extensions`], a type map for the shared state of a server and for values that layers add to a request.

use std::any::{Any, TypeId};
use std::sync::Arc;

/// A map with at most one value of each type. Cheap to clone; changes to a clone do not affect the original.
///
/// # Examples
///
/// ```
/// use bowline::exchange::Extensions;
///
/// let mut extensions = Extensions::default();
/// extensions.insert("a database");
/// assert_eq!(extensions.get::<&str>(), Some(&"a database"));
/// assert_eq!(extensions.get::<u8>(), None);
/// ```
#[derive(Clone, Default)]
pub struct Extensions(Option<Arc<ExtensionEntries>>);

/// A list: for the few entries that there are, a linear search is faster than a hash map.
type ExtensionEntries = Vec<(TypeId, Arc<dyn Any + Send + Sync>)>;

impl Extensions {
    /// Inserts a value, replacing an earlier one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.put(TypeId::of::<T>(), Arc::new(value));
    }

    /// Inserts a shared value; [`get`](Self::get) returns it as a `T`.
    pub(crate) fn insert_shared<T: Send + Sync + 'static>(&mut self, value: Arc<T>) {
        self.put(TypeId::of::<T>(), value);
    }

    /// Returns the value of type `T`.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.value(TypeId::of::<T>())?.downcast_ref()
    }

    /// Returns a shared reference to the value of type `T`.
    pub(super) fn get_shared<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let mut values = self.0.as_ref()?.iter();
        let (_, value) = values.find(|(own, _)| *own == TypeId::of::<T>())?;
        value.clone().downcast().ok()
    }

    /// Returns whether there is a value of the type with this id.
    pub(crate) fn contains_type(&self, of: TypeId) -> bool {
        self.value(of).is_some()
    }

    /// Adds all values of `others`, which replace values of the same type.
    pub fn extend(&mut self, others: &Self) {
        match (&mut self.0, &others.0) {
            (_, None) => {}
            (own @ None, Some(others)) => *own = Some(others.clone()),
            (Some(_), Some(others)) => {
                for (of, value) in others.iter() {
                    self.put(*of, value.clone());
                }
            }
        }
    }

    fn put(&mut self, of: TypeId, value: Arc<dyn Any + Send + Sync>) {
        let values = Arc::make_mut(self.0.get_or_insert_default());
        match values.iter_mut().find(|(own, _)| *own == of) {
            Some((_, old)) => *old = value,
            None => values.push((of, value)),
        }
    }

    fn value(&self, of: TypeId) -> Option<&(dyn Any + Send + Sync)> {
        let mut values = self.0.as_ref()?.iter();
        let (_, value) = values.find(|(own, _)| *own == of)?;
        Some(&**value)
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |values| values.len())
    }

    /// Returns whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The values may be secrets, and need not implement `Debug`.
        f.debug_struct("Extensions")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_a_clone_does_not_change_the_original() {
        let mut first = Extensions::default();
        first.insert(1_u8);
        let mut second = first.clone();

        second.insert(2_u8);

        assert_eq!(first.get::<u8>(), Some(&1));
        assert_eq!(second.get::<u8>(), Some(&2));
    }

    #[test]
    fn extend_replaces_values_of_the_same_type_and_keeps_the_others() {
        let mut own = Extensions::default();
        own.insert(1_u8);
        own.insert("kept");
        let mut others = Extensions::default();
        others.insert(2_u8);

        own.extend(&others);

        assert_eq!(own.get::<u8>(), Some(&2));
        assert_eq!(own.get::<&str>(), Some(&"kept"));
        assert_eq!(own.len(), 2);
    }
}
