"""The group that a rank with a GPU forms: NCCL for what is on it, gloo for everything else."""

import pytest
import torch
import torch.distributed as dist

from schemas.errors import RejectedError
from schemas.settings import TrainingSettings
from tests.gpu.cuda import needs_cuda
from trainers.build import precision_for
from trainers.ranks import Ranks
from trainers.settings import device_for

pytestmark = needs_cuda


def test_a_rank_takes_its_gpu_and_computes_in_bf16(ranks: Ranks) -> None:
    assert device_for(TrainingSettings(), local_rank=0) == ranks.device
    assert precision_for(TrainingSettings(), ranks) == "bf16"
    assert ranks.mesh.device_type == "cuda"


def test_tensors_of_the_gpu_meet_over_nccl_and_others_over_gloo(ranks: Ranks) -> None:
    group = dist.group.WORLD
    assert group is not None
    for device, backend in ((ranks.device, "nccl"), (torch.device("cpu"), "gloo")):
        assert group._get_backend(device).name() == backend
        tensor = torch.full((3,), 2.0, device=device)
        gathered = torch.zeros(3, device=device)
        dist.all_reduce(tensor)
        dist.all_gather_into_tensor(gathered, tensor)
        assert gathered.tolist() == [2.0] * 3


def test_objects_are_shared(ranks: Ranks) -> None:
    box: list[object] = ["reef"]
    found: list[object] = [None]
    dist.broadcast_object_list(box, src=0)
    dist.all_gather_object(found, {"rank": ranks.rank})
    assert (box, found) == (["reef"], [{"rank": 0}])


def test_a_number_that_is_not_finite_is_seen(ranks: Ranks) -> None:
    ranks.refuse_non_finite("loss", torch.zeros(3, device=ranks.device), torch.tensor(1.0))
    with pytest.raises(RejectedError, match="finite loss"):
        ranks.refuse_non_finite("loss", torch.tensor([0.0, torch.inf], device=ranks.device))
