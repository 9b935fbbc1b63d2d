//! The division of a window between classes.
//!
//! The function in the store computes the same, with the same numbers in the same order, so that both agree to the bit.

use alloc::{vec, vec::Vec};

use super::{ClassSettings, Division};

/// The slots of each class. `demands`: requests of each class at all gateways, more than `window` in all.
pub(super) fn divide(window: f64, division: Division, classes: &[ClassSettings], demands: &[f64]) -> Vec<f64> {
    let weights = |of: &[ClassSettings]| of.iter().map(|class| f64::from(class.weight)).collect::<Vec<_>>();
    match division {
        Division::Strict => {
            let mut left = window;
            let take = |&demand: &f64| {
                let slots = if demand < left { demand } else { left };
                left -= slots;
                slots
            };
            demands.iter().map(take).collect()
        }
        Division::Weighted => fill(window, &weights(classes), demands),
        Division::Demand => {
            let by_demand: Vec<f64> =
                weights(classes).iter().zip(demands).map(|(weight, demand)| weight * demand).collect();
            fill(window, &by_demand, demands)
        }
        Division::Shared => {
            let weights = weights(classes);
            let all: f64 = weights.iter().sum();
            let mut left = window;
            let mut slots = vec![0.0; demands.len()];
            for (i, class) in classes.iter().enumerate() {
                let share = window * weights[i] / all;
                let reserve = f64::from(class.reserve);
                let entitled = if share < reserve { reserve } else { share };
                slots[i] = if demands[i] < entitled { demands[i] } else { entitled };
                left -= slots[i];
            }
            for (i, class) in classes.iter().enumerate() {
                let reserve = f64::from(class.reserve);
                if slots[i] < reserve {
                    left -= reserve - slots[i];
                }
            }
            if left > 0.0 {
                let more: Vec<f64> = demands.iter().zip(&slots).map(|(demand, has)| demand - has).collect();
                for (has, lent) in slots.iter_mut().zip(fill(left, &weights, &more)) {
                    *has += lent;
                }
            }
            slots
        }
    }
}

/// Divides `amount` by weight, to each at most its cap. The amount beyond a cap goes to the others.
fn fill(amount: f64, weights: &[f64], caps: &[f64]) -> Vec<f64> {
    let mut given = vec![0.0; caps.len()];
    let mut open: Vec<bool> = caps.iter().zip(weights).map(|(&cap, &weight)| cap > 0.0 && weight > 0.0).collect();
    let mut left = amount;
    loop {
        let mut total = 0.0;
        for i in 0..caps.len() {
            if open[i] {
                total += weights[i];
            }
        }
        if total <= 0.0 {
            return given;
        }
        let level = left / total;
        let mut closed = false;
        for i in 0..caps.len() {
            if open[i] && caps[i] <= level * weights[i] {
                given[i] = caps[i];
                left -= caps[i];
                open[i] = false;
                closed = true;
            }
        }
        if !closed {
            for i in 0..caps.len() {
                if open[i] {
                    given[i] = level * weights[i];
                }
            }
            return given;
        }
    }
}
