//! The rate that the kernel holds the server's own device to, for a rate that is found. It counts while all clients are
//! reached through that device.

use std::{convert::Infallible, io, net::IpAddr, time::Duration};

use attach::{Limit, device_towards, limit};
use kernel::traffic_events::TrafficEvents;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use super::driver::Driver;

/// A change of traffic control takes several messages. They are waited for.
const CHANGE_TAKES: Duration = Duration::from_millis(50);
/// Routes change without a message here.
const EVERY: Duration = Duration::from_secs(60);
/// Where there is a limit, one of the new clients is looked at so often.
const CLIENT_EVERY: Duration = Duration::from_secs(1);
/// Where one was reached through another device, the limit does not count for so long.
const ELSEWHERE: Duration = Duration::from_secs(300);

/// Tells the driver of the rate of the device, and of its changes.
pub(super) async fn follow(driver: &Driver) {
    loop {
        let Err(error) = follow_changes(driver).await;
        tracing::debug!(%error, "whether the server's device is held to a rate cannot be read; it is tried again later");
        driver.handle_device_rate(None);
        // The device may have gone while it was looked at.
        sleep(EVERY).await;
    }
}

/// Ends with the first error.
async fn follow_changes(driver: &Driver) -> io::Result<Infallible> {
    // Changes after the first look are not missed.
    let events = TrafficEvents::open()?;
    let (mut known, mut elsewhere) = (None, None::<Instant>);
    loop {
        let client = driver.take_client();
        // The kernel may have it wait while another process changes devices.
        let (found, is_elsewhere) = spawn_blocking(move || look(client)).await.map_err(io::Error::other)??;
        if is_elsewhere {
            elsewhere = Some(Instant::now());
        }
        let every = if found.is_some() { CLIENT_EVERY } else { EVERY };
        let counts = found.filter(|_| elsewhere.is_none_or(|at| at.elapsed() >= ELSEWHERE));
        if counts != known {
            driver.handle_device_rate(counts.as_ref().map(|limit| limit.rate));
            say(counts.as_ref(), elsewhere.is_some());
            known = counts;
        }
        if let Ok(changed) = timeout(every, events.changed()).await {
            changed?;
            sleep(CHANGE_TAKES).await;
            events.forget()?;
        }
    }
}

/// The limit, and whether packets to this client leave through another device.
fn look(client: Option<IpAddr>) -> io::Result<(Option<Limit>, bool)> {
    let found = limit()?;
    let is_elsewhere = match (&found, client) {
        (Some(limit), Some(client)) => device_towards(client)?.is_some_and(|device| device != limit.device),
        _ => false,
    };
    Ok((found, is_elsewhere))
}

fn say(limit: Option<&Limit>, is_elsewhere: bool) {
    match limit {
        Some(Limit { device, kind, rate }) => {
            tracing::info!(device, kind, %rate, "the kernel holds the device to this rate: the uplink is not faster");
        }
        None if is_elsewhere => {
            tracing::info!("clients are reached through another device than the one with a rate: the rate is found");
        }
        None => tracing::info!("the kernel no longer holds the device to a rate: the rate is found"),
    }
}
