"""Features that a cluster has settled on, asked for and changed (KIP-584)."""

from barnabas.client.cluster import Cluster, check
from barnabas.protocol.messages import update_features

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


async def finalized_features(cluster: Cluster) -> dict[str, int]:
    """By name, the level of each feature as some broker knows it; absent features have none."""

    async def attempt() -> dict[str, int]:
        connection = await cluster.any_connection()
        await connection.learn_features(timeout=cluster.timeout)
        return dict(connection.features)

    return await cluster.retrying(attempt)


async def update_feature(
    cluster: Cluster, name: str, level: int, *, change: int = UPGRADE, validate_only: bool = False
) -> None:
    """Raises or lowers a feature; a level of 0 takes it away.

    `change` is UPGRADE, SAFE_DOWNGRADE (only where nothing is lost) or UNSAFE_DOWNGRADE. Raises
    FEATURE_UPDATE_FAILED, INVALID_UPDATE_VERSION or INVALID_REQUEST where it cannot be.
    """
    request = update_features.UpdateFeaturesRequest(
        timeout_ms=int(cluster.timeout * 1000),
        feature_updates=[
            update_features.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=change
            )
        ],
        validate_only=validate_only,
    )

    async def attempt() -> None:
        response = await cluster.ask_controller(update_features.API, request)
        check(response.error_code, response.error_message)
        for row in response.results:
            check(row.error_code, row.error_message)

    await cluster.retrying(attempt)
