//! The memory of parked calls: counts and bytes, per principal and in all.

use std::collections::BTreeMap;

use bowline::exchange::Principal;

use super::settings::ParkSettings;

/// What parked calls use, and may use.
#[derive(Debug)]
pub(super) struct Budget {
    all: Usage,
    /// Without principals that use nothing.
    each: BTreeMap<Principal, Usage>,
    max_all: Usage,
    max_each: Usage,
}

/// A number of calls and of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) calls: usize,
    pub(crate) bytes: usize,
}

/// The part of the budget that one call uses. It must be given back with [`Budget::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a charge that is not released is lost"]
pub(super) struct Charge {
    bytes: usize,
}

/// A limit would be exceeded. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverBudget;

impl Budget {
    pub(super) fn new(settings: &ParkSettings) -> Self {
        Self {
            all: Usage::default(),
            each: BTreeMap::new(),
            max_all: Usage {
                calls: settings.max_calls,
                bytes: settings.max_bytes,
            },
            max_each: Usage {
                calls: settings.max_calls_each,
                bytes: settings.max_bytes_each,
            },
        }
    }

    /// Charges one call with this many bytes.
    pub(super) fn charge(
        &mut self,
        principal: &Principal,
        bytes: usize,
    ) -> Result<Charge, OverBudget> {
        self.add(principal, Usage { calls: 1, bytes })?;
        Ok(Charge { bytes })
    }

    /// Changes the bytes of a charge. If they exceed a limit, the charge stays as it is.
    pub(super) fn resize(
        &mut self,
        principal: &Principal,
        charge: &mut Charge,
        bytes: usize,
    ) -> Result<(), OverBudget> {
        if let Some(more) = bytes.checked_sub(charge.bytes) {
            let more = Usage {
                calls: 0,
                bytes: more,
            };
            self.add(principal, more)?;
        } else {
            let less = Usage {
                calls: 0,
                bytes: charge.bytes - bytes,
            };
            self.subtract(principal, less);
        }
        charge.bytes = bytes;
        Ok(())
    }

    #[allow(clippy::needless_pass_by_value, reason = "a charge is released once")]
    pub(super) fn release(&mut self, principal: &Principal, charge: Charge) {
        let bytes = charge.bytes;
        self.subtract(principal, Usage { calls: 1, bytes });
    }

    pub(super) fn used(&self) -> Usage {
        self.all
    }

    pub(super) fn used_by(&self, principal: &Principal) -> Usage {
        self.each.get(principal).copied().unwrap_or_default()
    }

    fn add(&mut self, principal: &Principal, more: Usage) -> Result<(), OverBudget> {
        let all = self.all.plus(more);
        let each = self.used_by(principal).plus(more);
        if !all.is_within(self.max_all) || !each.is_within(self.max_each) {
            return Err(OverBudget);
        }
        self.all = all;
        self.each.insert(principal.clone(), each);
        Ok(())
    }

    fn subtract(&mut self, principal: &Principal, less: Usage) {
        self.all = self.all.minus(less);
        let each = self.used_by(principal).minus(less);
        if each == Usage::default() {
            self.each.remove(principal);
        } else {
            self.each.insert(principal.clone(), each);
        }
    }
}

#[cfg(test)]
impl Charge {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Usage {
    fn plus(self, more: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(more.calls),
            bytes: self.bytes.saturating_add(more.bytes),
        }
    }

    fn minus(self, less: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(less.calls),
            bytes: self.bytes.saturating_sub(less.bytes),
        }
    }

    fn is_within(self, max: Self) -> bool {
        self.calls <= max.calls && self.bytes <= max.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget::new(&ParkSettings {
            max_calls: 3,
            max_calls_each: 2,
            max_bytes: 100,
            max_bytes_each: 60,
            ..ParkSettings::default()
        })
    }

    #[test]
    fn every_limit_refuses_before_anything_is_charged() {
        let (ada, bob) = (Principal::named("ada"), Principal::named("bob"));
        let mut budget = budget();
        let mut first = budget.charge(&ada, 10).unwrap();
        let _second = budget.charge(&ada, 10).unwrap();
        let used = budget.used();

        assert_eq!(budget.charge(&ada, 1), Err(OverBudget), "calls of one");
        assert_eq!(budget.charge(&bob, 61), Err(OverBudget), "bytes of one");
        assert_eq!(budget.resize(&ada, &mut first, 51), Err(OverBudget));
        assert_eq!(first.bytes(), 10);
        assert_eq!(budget.used(), used);

        budget.resize(&ada, &mut first, 50).unwrap();
        assert_eq!(budget.charge(&bob, 41), Err(OverBudget), "bytes of all");
        let _third = budget.charge(&bob, 40).unwrap();
        let carl = Principal::anonymous();
        assert_eq!(budget.charge(&carl, 0), Err(OverBudget), "calls of all");
    }

    #[test]
    fn a_released_charge_leaves_nothing() {
        let ada = Principal::named("ada");
        let mut budget = budget();
        let mut charge = budget.charge(&ada, 10).unwrap();
        budget.resize(&ada, &mut charge, 40).unwrap();
        budget.resize(&ada, &mut charge, 20).unwrap();
        assert_eq!(budget.used_by(&ada).bytes, 20);

        budget.release(&ada, charge);

        assert_eq!(budget.used(), Usage::default());
        assert!(budget.each.is_empty());
    }
}
