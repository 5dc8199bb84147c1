//! [`Model`]: what a change costs, as a function of replicas and subscriptions.

/// The processor time of a change is `publish + per_replica × replicas + per_subscription × subscriptions`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Model {
    pub(crate) publish: f64,
    pub(crate) per_replica: f64,
    pub(crate) per_subscription: f64,
}

/// The cost of a change with so many replicas and subscriptions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    pub(crate) replicas: usize,
    pub(crate) subscriptions: usize,
    pub(crate) cost: f64,
}

impl Model {
    /// Fits the constants to all measurements by least squares of the relative errors: otherwise those with many
    /// subscriptions, whose noise is larger than what the others cost, would decide alone. None is negative: one that would
    /// be is 0, and the others are fitted without it.
    pub(crate) fn fit(measured: &[Measurement]) -> Self {
        let mut used = [true; TERMS];
        loop {
            let constants = solve(normal_equations(measured, used));
            let negative = (0..TERMS)
                .filter(|term| constants[*term] < 0.0)
                .min_by(|a, b| constants[*a].total_cmp(&constants[*b]));
            match negative {
                Some(term) => used[term] = false,
                None => {
                    let [publish, per_replica, per_subscription] = constants;
                    return Self {
                        publish,
                        per_replica,
                        per_subscription,
                    };
                }
            }
        }
    }

    pub(crate) fn cost(self, replicas: usize, subscriptions: usize) -> f64 {
        self.publish
            + self.per_replica * replicas as f64
            + self.per_subscription * subscriptions as f64
    }
}

/// A row for each constant: its coefficients, then the right side.
type Equations = [[f64; TERMS + 1]; TERMS];

fn normal_equations(measured: &[Measurement], used: [bool; TERMS]) -> Equations {
    let mut equations = [[0.0; TERMS + 1]; TERMS];
    for measurement in measured {
        let terms = [
            1.0,
            measurement.replicas as f64,
            measurement.subscriptions as f64,
        ];
        // Divided by the measured cost, the errors are relative, and the right side is 1.
        let row = terms.map(|term| term / measurement.cost);
        for (equation, of_row) in equations.iter_mut().zip(row) {
            for (sum, other) in equation.iter_mut().zip(row.into_iter().chain([1.0])) {
                *sum += of_row * other;
            }
        }
    }
    for (term, is_used) in used.into_iter().enumerate() {
        if !is_used {
            equations[term] = [0.0; TERMS + 1];
            for equation in &mut equations {
                equation[term] = 0.0;
            }
            equations[term][term] = 1.0;
        }
    }
    equations
}

/// Eliminates one constant after the other. The matrix is symmetric and positive, so that no row needs to be exchanged.
fn solve(mut equations: Equations) -> [f64; TERMS] {
    for pivot in 0..TERMS {
        let pivot_row = equations[pivot];
        for (row, equation) in equations.iter_mut().enumerate() {
            if row != pivot {
                let factor = equation[pivot] / pivot_row[pivot];
                for (value, of_pivot) in equation.iter_mut().zip(pivot_row) {
                    *value -= factor * of_pivot;
                }
            }
        }
    }
    std::array::from_fn(|term| equations[term][TERMS] / equations[term][term])
}

const TERMS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(cost: impl Fn(f64, f64) -> f64) -> Vec<Measurement> {
        let cells = [1, 3, 10].into_iter().flat_map(|r| [(r, 100), (r, 1_000)]);
        let measured = cells.map(|(replicas, subscriptions)| Measurement {
            replicas,
            subscriptions,
            cost: cost(replicas as f64, subscriptions as f64),
        });
        measured.collect()
    }

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.01, "{found} {expected}");
    }

    #[test]
    fn exact_measurements_give_their_constants() {
        let model = Model::fit(&measure(|r, s| 300.0 + 40.0 * r + 25.0 * s));

        assert_close(model.publish, 300.0);
        assert_close(model.per_replica, 40.0);
        assert_close(model.per_subscription, 25.0);
        assert_close(model.cost(10, 10_000), 250_700.0);
    }

    #[test]
    fn no_constant_is_negative() {
        let model = Model::fit(&measure(|r, s| 300.0 - 10.0 * r + 25.0 * s));

        assert_close(model.per_replica, 0.0);
        assert!(model.publish > 0.0 && model.per_subscription > 0.0);
    }
}
