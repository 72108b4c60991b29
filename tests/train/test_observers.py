"""The online probe against SGD on the cross entropy, by autograd in float64."""

import torch
import torch.nn.functional as F

from twofold.train.observers import OnlineProbe

CPU = torch.device("cpu")
V, N, K, C = 2, 7, 5, 3


def probe() -> OnlineProbe:
    return OnlineProbe(K, C, 0.5, CPU)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(V, N, K, generator=generator), torch.randint(0, C, (N,), generator=generator)


def test_probe_is_sgd_with_momentum_on_the_cross_entropy() -> None:
    online = probe()
    classifier = torch.nn.Linear(K, C).double()
    torch.nn.init.zeros_(classifier.weight)
    torch.nn.init.zeros_(classifier.bias)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.5, momentum=0.9)
    for step in range(6):
        factor = 1 - step / 10
        features, labels = batch(step)
        values = online.observe(features, labels, torch.tensor(factor))
        rows, targets = features.double().flatten(0, 1), labels.repeat(V)
        optimizer.param_groups[0]["lr"] = 0.5 * factor
        optimizer.zero_grad()
        logits = classifier(rows)
        loss = F.cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(values["online_loss"].double(), loss.detach(), rtol=1e-5, atol=0)
        assert values["online_train_accuracy"] == (logits.argmax(dim=1) == targets).float().mean()
        torch.testing.assert_close(online.logits(features[0]).double(), classifier(rows[:N]), rtol=1e-4, atol=1e-5)


def test_a_probe_that_knows_nothing_says_the_first_class() -> None:
    features, _ = batch(0)
    labels = torch.tensor([0, 0, 1, 2, 1, 2, 0])
    assert probe().observe(features, labels, torch.tensor(1.0))["online_train_accuracy"] == torch.tensor(3 / 7)


def test_probe_goes_on_from_its_state() -> None:
    whole, halves, rest = probe(), probe(), probe()
    for step in range(4):
        whole.observe(*batch(step), torch.tensor(1.0))
        (halves if step < 2 else rest).observe(*batch(step), torch.tensor(1.0))
        if step == 1:
            state = {name: value.contiguous() for name, value in halves.state_dict().items()}
            assert state["weight"].shape == (K + 1, C)  # what checkpoints hold, whichever way it lies in memory
            rest.load_state_dict(state)
    assert torch.equal(whole.weight, rest.weight)
    assert torch.equal(whole.velocity, rest.velocity)


def test_images_without_a_label_do_not_move_the_probe() -> None:
    features, labels = batch(0)
    some, alone = probe(), probe()
    known = torch.arange(len(labels)) % 3 != 0
    gaps = some.observe(features, labels.masked_fill(~known, -1), torch.tensor(1.0))
    values = alone.observe(features[:, known], labels[known], torch.tensor(1.0))
    torch.testing.assert_close(some.weight, alone.weight)
    torch.testing.assert_close(gaps, values)
    before = some.weight.clone()
    some.velocity.zero_()
    nothing = some.observe(features, torch.full_like(labels, -1), torch.tensor(1.0))
    assert torch.equal(some.weight, before)
    assert all(float(value) == 0 for value in nothing.values())
