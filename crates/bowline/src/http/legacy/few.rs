//! A list that rarely has more than one element.

/// A list whose first element is kept in place: only a second one is allocated.
#[derive(Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    /// Empty while there is no first.
    others: Vec<T>,
}

impl<T> Few<T> {
    pub(super) fn push(&mut self, element: T) {
        match &self.first {
            None => self.first = Some(element),
            Some(_) => self.others.push(element),
        }
    }

    /// Calls a function with each element, in order.
    pub(super) fn for_each(self, mut act: impl FnMut(T)) {
        if let Some(first) = self.first {
            act(first);
            self.others.into_iter().for_each(act);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self {
            first: None,
            others: Vec::new(),
        }
    }
}

impl<T> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push(element));
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut few = Self::default();
        few.extend(elements);
        few
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_in_order() {
        let mut few = Few::from_iter([1]);
        few.push(2);
        few.extend([3, 4]);

        assert_eq!(few.iter().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(few.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn one_element_is_not_allocated() {
        let few = Few::from_iter([1]);

        assert_eq!(few.others.capacity(), 0);
    }
}
