"""Who brings an invitation is let in, as often as it says and no more."""

from pathlib import Path

from tests.runtime.desks import MEMBER, Reef, asked, invited_by, run, stranger

from shoal.protocol.messages import Refusal, Welcome


def test_an_invitation_is_kept_over_a_restart_and_so_is_who_came(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        reef, ann = Reef(tmp_path), stranger("ann", tmp_path)
        invitation = invited_by(reef.found("root"), MEMBER, uses=2)
        assert isinstance(await asked(reef.back("root"), ann, invitation), Welcome)
        desk = reef.back("root")

        again = await asked(desk, ann, invitation)
        other = await asked(desk, stranger("bob", tmp_path), invitation)
        late = await asked(desk, stranger("eve", tmp_path), invitation)

        assert isinstance(again, Welcome)
        assert isinstance(other, Welcome)
        assert isinstance(late, Refusal)
        assert late.reason == "the invitation is used up: 2 of 2"

    run(story())
